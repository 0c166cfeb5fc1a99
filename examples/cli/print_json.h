/* print_json.h - how every command prints a document
   SPDX-License-Identifier: MIT

   Documents are trees of jansson, which also reads them; what is written as it goes, by programs
   without trees, is json.h's. */
#ifndef DXPU_CLI_PRINT_JSON_H
#define DXPU_CLI_PRINT_JSON_H

#include <jansson.h>

/* On a line of its own on standard output; released.  NULL ends the program: it could not be made.
   flags: JSON_ENSURE_ASCII, JSON_REAL_PRECISION() or 0.  A terminal gets no character that it would
   obey. */
void print_json(json_t *document, size_t flags);

#endif
