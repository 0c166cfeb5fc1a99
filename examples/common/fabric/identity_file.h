/* identity_file.h - who a proxy is, kept over its restarts: 16 random bytes in a file
   SPDX-License-Identifier: MIT */
#ifndef IDENTITY_FILE_H_INCLUDED
#define IDENTITY_FILE_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IDENTITY_BYTES = 16 };
enum { IDENTITY_TEXT_BYTES = 2 * IDENTITY_BYTES + 1 }; /* hexadecimal, and the end of the line */

/* Read it, or make it when the file is not there yet or empty; durable when this returns 0.  It is
   this process's from then on: no other proxy of the machine can have it.  Else, after a message,
   the exit status: PROGRAM_SYSTEM or PROGRAM_DAMAGED. */
int identity_file_open(const char *file, uint8_t out[IDENTITY_BYTES]);
/* What such a file has: false when it is not that. */
bool identity_file_parse(const char *text, size_t len, uint8_t out[IDENTITY_BYTES]);

#endif /* IDENTITY_FILE_H_INCLUDED */
