/* runtime.c - what is here instead of a C library
   SPDX-License-Identifier: MIT */
#include "board.h"
#include "stats.h"

#include <stdlib.h>

enum { ARENA_BYTES = 288 * 1024 }; /* the memory model's memory, and itself */

/* firmware.mk keeps the compiler from making calls of themselves out of these loops. */
void *memcpy(void *to, const void *from, size_t bytes)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    if ((((uintptr_t)t | (uintptr_t)f) & 3u) == 0) {
        for (; bytes >= 4; bytes -= 4, t += 4, f += 4)
            *(uint32_t *)(void *)t = *(const uint32_t *)(const void *)f;
    }
    while (bytes--)
        *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    if (t <= f || t >= f + bytes)
        return memcpy(to, from, bytes);
    while (bytes--)
        t[bytes] = f[bytes];
    return to;
}

void *memset(void *p, int byte, size_t bytes)
{
    uint8_t *t = p;
    uint32_t word = 0x01010101u * (uint8_t)byte;
    if (((uintptr_t)t & 3u) == 0) {
        for (; bytes >= 4; bytes -= 4, t += 4)
            *(uint32_t *)(void *)t = word;
    }
    while (bytes--)
        *t++ = (uint8_t)byte;
    return p;
}

int memcmp(const void *a, const void *b, size_t bytes)
{
    const uint8_t *x = a, *y = b;
    for (; bytes; bytes--, x++, y++) {
        if (*x != *y)
            return *x - *y;
    }
    return 0;
}

extern uint32_t stack_bottom[], stack_top[]; /* link.ld */

enum { PAINT = 0x5aa55aa5, OWN_BYTES = 256 };

void stack_paint(void)
{
    volatile uint32_t *p = stack_bottom;
    while ((uintptr_t)p < (uintptr_t)&p - OWN_BYTES)
        *p++ = PAINT;
}

uint32_t stack_used(void)
{
    const volatile uint32_t *p = stack_bottom;
    while (*p == PAINT)
        p++;
    return (uint32_t)((uintptr_t)stack_top - (uintptr_t)p);
}

/* Never given back: a model makes its objects once. */
void *calloc(size_t count, size_t bytes)
{
    static uint64_t arena[ARENA_BYTES / 8];
    static size_t used;
    size_t want = (count * bytes + 7u) & ~(size_t)7u;
    uint8_t *p = (uint8_t *)arena + used;
    if (want > sizeof arena - used)
        return NULL;
    used += want;
    return memset(p, 0, want);
}

void free(void *p)
{
    (void)p;
}

void print_number(uint64_t value)
{
    char text[21];
    unsigned at = sizeof text - 1;
    uint32_t rest = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value; /* no division of 64 bits */
    text[at] = '\0';
    do {
        text[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    board_print(text + at);
}

/* The one function of stats.h that a model calls. */
void report_number(report *r, const char *name, uint64_t value)
{
    (void)r;
    board_print("  ");
    board_print(name);
    board_print(" ");
    print_number(value);
    board_print("\n");
}
