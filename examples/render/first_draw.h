/* first_draw.h - a command stream that makes the libraries below virglrenderer load all they need
   SPDX-License-Identifier: MIT */
#ifndef FIRST_DRAW_H_INCLUDED
#define FIRST_DRAW_H_INCLUDED

#include <stdint.h>

enum { FIRST_DRAW_WORDS = 256 };

/* A triangle of one colour into resource `target`, of 16 x 16 pixels of format 1, with vertices in
   resource `vertices`, a buffer of 96 bytes.  The words used. */
unsigned first_draw(uint32_t target, uint32_t vertices, uint32_t out[FIRST_DRAW_WORDS]);

#endif /* FIRST_DRAW_H_INCLUDED */
