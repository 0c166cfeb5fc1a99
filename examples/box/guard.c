/* guard.c - see guard.h
   SPDX-License-Identifier: MIT */
#include "guard.h"

#include <stdlib.h>

int guard_init(dxpu_guard *g, const dxpu_guard_allowed *allowed)
{
    dxpu_tag_entry *entries = malloc(GUARD_REQUESTS * sizeof *entries);
    dxpu_windows windows;
    if (!entries)
        return -1;
    dxpu_windows_init(&windows, NULL, 0, realloc);
    (void)dxpu_guard_init(g, allowed, entries, GUARD_REQUESTS, &windows); /* in range */
    return 0;
}

void guard_free(dxpu_guard *g)
{
    free(g->windows.at);
    free(g->entries);
    memset(g, 0, sizeof *g);
}
