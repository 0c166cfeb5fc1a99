/* windows.c - see windows.h
   SPDX-License-Identifier: MIT */
#include "windows.h"

#include <stdlib.h>

/* The table, which may grow. */
static windows *growing(windows *w)
{
    w->resize = realloc;
    return w;
}

void windows_free(windows *w)
{
    free(w->at);
    memset(w, 0, sizeof *w);
}

bool windows_grant(windows *w, uint64_t first, uint64_t last, unsigned access)
{
    return dxpu_windows_grant(growing(w), first, last, access);
}

bool windows_revoke(windows *w, uint64_t first, uint64_t last, unsigned access)
{
    return dxpu_windows_revoke(growing(w), first, last, access);
}

bool windows_copy(windows *to, const windows *from)
{
    return dxpu_windows_copy(growing(to), from);
}

bool windows_event(windows *w, const dxpu_event *e)
{
    return dxpu_windows_event(growing(w), e);
}
