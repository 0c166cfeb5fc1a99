/* pool_text.h - text that came from elsewhere, made fit for a terminal
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_POOL_TEXT_H
#define DXPU_CLI_POOL_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* text_clean() of every string in a document. */
void pool_text_clean_json(json_t *j);
/* Columns that it takes. */
unsigned pool_text_width(const char *text);
/* How many bytes of it take at most `width` columns. */
size_t pool_text_cut(const char *text, unsigned width);

/* "2026-01-02T03:04:05.678Z" as "2026-01-02 03:04:05Z"; anything else as it is, cut. */
const char *pool_text_time(const char *rfc3339, char out[32]);
/* Percent-encode what is not allowed in a part of a URL; false: no room. */
bool pool_text_escape(const char *in, char *out, size_t cap);

#endif
