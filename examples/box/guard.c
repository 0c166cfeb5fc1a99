/* guard.c - see guard.h
   SPDX-License-Identifier: MIT */
#include "guard.h"

#include <stdlib.h>

void guard_init(dxpu_guard *g, const dxpu_guard_allowed *allowed)
{
    memset(g, 0, sizeof *g);
    g->allowed = *allowed;
    dxpu_windows_init(&g->windows, NULL, 0, realloc);
}

int guard_begin(dxpu_guard *g)
{
    g->entries = malloc(GUARD_REQUESTS * sizeof *g->entries);
    if (!g->entries)
        return -1;
    g->capacity = GUARD_REQUESTS;
    dxpu_guard_clear(g);
    return 0;
}

void guard_end(dxpu_guard *g)
{
    free(g->windows.at);
    free(g->entries);
    g->entries = NULL;
    dxpu_windows_init(&g->windows, NULL, 0, realloc);
}
