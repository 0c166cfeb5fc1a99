/* text.h - text of unknown origin, made fit for a terminal and for a line of a log
   SPDX-License-Identifier: MIT */
#ifndef TEXT_H_INCLUDED
#define TEXT_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code point at s, which is not at its end, and the bytes to go on by, 1 or more.  *out is
   TEXT_BAD where no code point of UTF-8 is. */
enum { TEXT_BAD = 0x7fffffff };
size_t text_next(const char *s, uint32_t *out);

/* Control characters, what turns the direction of text, what cannot be seen, and bytes that are no
   UTF-8 become '?', in place: a terminal obeys what it is sent. */
void text_clean(char *text);

/* Index of the name that `word` was probably meant to be, -1: none is near.  name(user, i) returns
   NULL behind the last one. */
int text_nearest(const char *word, const char *(*name)(const void *user, unsigned i),
                 const void *user);

#endif /* TEXT_H_INCLUDED */
