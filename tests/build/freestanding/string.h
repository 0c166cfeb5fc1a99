/* The part of string.h that dxpu.h asks of a system without a C library. */
#ifndef FREESTANDING_STRING_H
#define FREESTANDING_STRING_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *p, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
#ifdef __cplusplus
}
#endif
#endif
