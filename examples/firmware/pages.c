/* pages.c - a device's memory where there are no pages: pages.h of the box's devices
   SPDX-License-Identifier: MIT */
#include "pages.h"

#include <stdlib.h>
#include <string.h>

int pages_open(pages *p, uint64_t size, bool sparse, const device_settings *s)
{
    (void)s;
    (void)sparse;
    p->size = (size_t)size;
    p->dirty = 0;
    p->bytes = p->size == size ? calloc(1, p->size) : NULL;
    return p->bytes ? 0 : -1;
}

void pages_close(pages *p)
{
    free(p->bytes);
}

void pages_clear(pages *p)
{
    memset(p->bytes, 0, (size_t)p->dirty);
    p->dirty = 0;
}

void pages_reap(pages *p)
{
    (void)p; /* no job has any */
}
