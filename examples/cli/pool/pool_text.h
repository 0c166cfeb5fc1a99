/* pool_text.h - text that came from elsewhere, made fit for a terminal; durations
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_POOL_TEXT_H
#define DXPU_CLI_POOL_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Control characters, what turns the direction of text, what cannot be seen, and bytes that are no
   UTF-8 become '?', in place: a terminal does what it is told, whoever says it. */
void pool_text_clean(char *text);
/* The same of every string in a document. */
void pool_text_clean_json(json_t *j);
/* Columns that it takes. */
unsigned pool_text_width(const char *text);
/* How many bytes of it take at most `width` columns. */
size_t pool_text_cut(const char *text, unsigned width);

/* Seconds of 90, 90s, 30m, 2h, 7d or 1w; false: it is none of them, or more than 100 years. */
bool pool_text_seconds(const char *text, uint64_t *out);
/* Decimal digits alone, at most `max`. */
bool pool_text_number(const char *text, uint64_t max, uint64_t *out);
/* "2026-01-02T03:04:05.678Z" as "2026-01-02 03:04:05Z"; anything else as it is, cut. */
const char *pool_text_time(const char *rfc3339, char out[32]);
/* Percent-encode what may not stand in a part of a URL; false: no room. */
bool pool_text_escape(const char *in, char *out, size_t cap);

#endif
