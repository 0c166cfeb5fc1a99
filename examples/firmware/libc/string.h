/* string.h - what dxpu.h asks of a machine without a C library; runtime.c has the bodies
   SPDX-License-Identifier: MIT */
#ifndef FIRMWARE_STRING_H_INCLUDED
#define FIRMWARE_STRING_H_INCLUDED

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *p, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

#endif /* FIRMWARE_STRING_H_INCLUDED */
