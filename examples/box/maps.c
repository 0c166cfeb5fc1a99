/* maps.c - see maps.h
   SPDX-License-Identifier: MIT */
#include "maps.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE = 1024 }; /* pieces beside twice as many as windows */

void maps_init(maps *m)
{
    memset(m, 0, sizeof *m);
    dxpu_windows_init(&m->is, NULL, 0, realloc);
}

void maps_free(maps *m)
{
    free(m->is.at);
    free(m->at);
}

void maps_clear(maps *m)
{
    dxpu_windows_clear(&m->is);
    m->count = 0;
    m->rebuilds = false;
}

bool maps_next(maps *m, const dxpu_windows *to_be, uint64_t *from, maps_step *out)
{
    dxpu_windows_change c;
    m->rebuilds = m->count && (m->rebuilds || m->count > 2 * to_be->count + SPARE);
    out->add = false;
    if (m->rebuilds) {
        out->window = m->at[m->count - 1];
        return true;
    }
    if (!dxpu_windows_differ(&m->is, to_be, *from, &c))
        return false;
    if (c.is) {
        out->window = m->at[dxpu_windows_find(m->at, m->count, c.first)];
        return true;
    }
    out->add = true;
    out->window.first = c.first;
    out->window.last = c.last;
    out->window.access = c.to_be;
    return true;
}

static bool has_place(maps *m)
{
    uint32_t capacity = m->capacity ? m->capacity * 2 : 16;
    dxpu_window *at;
    if (m->count < m->capacity)
        return true;
    at = realloc(m->at, capacity * sizeof *at);
    if (!at)
        return false;
    m->at = at;
    m->capacity = capacity;
    return true;
}

bool maps_did(maps *m, const maps_step *s, uint64_t *from)
{
    uint32_t i = dxpu_windows_find(m->at, m->count, s->window.first);
    if (!s->add) {
        (void)dxpu_windows_revoke(&m->is, s->window.first, s->window.last, s->window.access);
        memmove(m->at + i, m->at + i + 1, (--m->count - i) * sizeof *m->at);
        *from = m->rebuilds ? 0 : s->window.first;
        return true;
    }
    if (!has_place(m) ||
        !dxpu_windows_grant(&m->is, s->window.first, s->window.last, s->window.access))
        return false;
    memmove(m->at + i + 1, m->at + i, (m->count++ - i) * sizeof *m->at);
    m->at[i] = s->window;
    *from = s->window.first; /* nothing differs in it; the address behind it may be none */
    return true;
}
