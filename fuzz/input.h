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

static inline uint32_t next32(input *in)
{
    uint32_t v = next(in);
    v |= (uint32_t)next(in) << 8;
    v |= (uint32_t)next(in) << 16;
    return v | (uint32_t)next(in) << 24;
}

/* The next *bytes bytes, or as many as are left: *bytes says. */
static inline const uint8_t *next_piece(input *in, size_t *bytes)
{
    const uint8_t *piece = in->at;
    *bytes = *bytes < in->left ? *bytes : in->left;
    in->at += *bytes;
    in->left -= *bytes;
    return piece;
}

#endif /* INPUT_H_INCLUDED */
