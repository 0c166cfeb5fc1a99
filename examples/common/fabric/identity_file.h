/* identity_file.h - who a proxy is, kept over its restarts: 16 random bytes in a file
   SPDX-License-Identifier: MIT */
#ifndef IDENTITY_FILE_H_INCLUDED
#define IDENTITY_FILE_H_INCLUDED

#include <stdint.h>

enum { IDENTITY_BYTES = 16 };

/* Read it, or make it when the file is not there yet or empty; durable when this returns 0.  It is
   this process's from then on: no other proxy of the machine can have it.  Else, after a message,
   the exit status: PROGRAM_SYSTEM or PROGRAM_DAMAGED. */
int identity_file_open(const char *file, uint8_t out[IDENTITY_BYTES]);

#endif /* IDENTITY_FILE_H_INCLUDED */
