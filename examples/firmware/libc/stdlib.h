/* stdlib.h - what the memory model asks of it: memory, once, at the start; runtime.c has the bodies
   SPDX-License-Identifier: MIT */
#ifndef FIRMWARE_STDLIB_H_INCLUDED
#define FIRMWARE_STDLIB_H_INCLUDED

#include <stddef.h>

void *calloc(size_t count, size_t bytes);
void free(void *p);

#endif /* FIRMWARE_STDLIB_H_INCLUDED */
