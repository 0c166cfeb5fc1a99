/* json.h - JSON written once, as it goes: statistics, events, lines of logs
   SPDX-License-Identifier: MIT

   Nothing is allocated and nothing fails, so a loop and a signal's message may use it.  Names and
   text are escaped: what is written is ASCII, on one line, for every input; a byte that is no
   UTF-8 becomes U+FFFD. */
#ifndef JSON_H_INCLUDED
#define JSON_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_writer {
    FILE *out;            /* NULL: into text */
    char *text;           /* ends with a 0 */
    size_t capacity, len; /* of text; len is what it would have been, when that is larger */
    bool first;           /* nothing was written in the object or array that is open */
} json_writer;

void json_to_file(json_writer *w, FILE *out);
void json_to_text(json_writer *w, char *text, size_t capacity); /* capacity: 1 or more */

/* name NULL: outside of an object. */
void json_put_open(json_writer *w, const char *name, char bracket); /* '{' or '[' */
void json_put_close(json_writer *w, char bracket);                  /* '}' or ']' */
void json_put_number(json_writer *w, const char *name, uint64_t value);
void json_put_real(json_writer *w, const char *name, double value); /* 3 digits; null: not finite */
void json_put_text(json_writer *w, const char *name, const char *value);
void json_put_bool(json_writer *w, const char *name, bool value);
/* `len` bytes that are JSON already. */
void json_put_raw(json_writer *w, const char *name, const char *value, size_t len);

#endif /* JSON_H_INCLUDED */
