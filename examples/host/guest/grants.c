/* grants.c - see grants.h
   SPDX-License-Identifier: MIT */
#include "grants.h"

void grants_free(grants *g)
{
    windows_free(&g->told);
    windows_free(&g->wanted);
}

void grants_clear(grants *g)
{
    windows_clear(&g->told);
    windows_clear(&g->wanted);
    g->from = 0;
    g->waits = false;
}

bool grants_changed(grants *g)
{
    windows_change c;
    g->from = 0;
    return windows_differ(&g->told, &g->wanted, 0, &c);
}

/* What is taken away goes first: a range never has more than it had or is to have. */
bool grants_next(grants *g, dxpu_event *out)
{
    windows_change c;
    unsigned less, access;
    if (!windows_differ(&g->told, &g->wanted, g->from, &c))
        return false;
    less = c.is & ~c.to_be;
    access = less ? less : c.to_be & ~c.is;
    memset(out, 0, sizeof *out);
    out->type = less ? DXPU_EVENT_DMA_REVOKE : DXPU_EVENT_DMA_GRANT;
    out->flags = (uint8_t)((access & WINDOW_READ ? DXPU_EVENT_READ : 0) |
                           (access & WINDOW_WRITE ? DXPU_EVENT_WRITE : 0));
    out->base = c.first;
    out->length = c.last - c.first + 1;
    if (!out->length) /* all there is: the last byte arrives with the next one */
        out->length = UINT64_MAX;
    g->from = c.first;
    return true;
}

void grants_sent(grants *g, const dxpu_event *e)
{
    g->events++;
    if (windows_event(&g->told, e))
        return;
    g->no_room++; /* nor will there be at the box: the device goes without */
    (void)windows_revoke(&g->wanted, e->base, e->base + (e->length - 1),
                         WINDOW_READ | WINDOW_WRITE);
    g->from = 0;
}
