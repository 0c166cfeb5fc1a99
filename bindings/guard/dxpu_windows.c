/* dxpu_windows.c - see dxpu_windows.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Looking up   2 Changing   3 Comparing   4 Link events */
#include "dxpu_windows.h"

/* ==== 1  Looking up =========================================================================== */

uint32_t dxpu_windows_find(const dxpu_window *at, uint32_t count, uint64_t address)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (at[mid].last < address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static uint32_t find(const dxpu_windows *w, uint64_t address)
{
    return dxpu_windows_find(w->at, w->count, address);
}

unsigned dxpu_windows_at(const dxpu_windows *w, uint64_t address)
{
    uint32_t i = find(w, address);
    return i < w->count && w->at[i].first <= address ? w->at[i].access : 0;
}

bool dxpu_windows_allow(const dxpu_windows *w, uint64_t address, uint64_t bytes, unsigned access)
{
    uint64_t last = address + (bytes - 1);
    if (bytes == 0 || last < address)
        return false;
    for (uint32_t i = find(w, address); i < w->count; i++) {
        const dxpu_window *x = &w->at[i];
        if (x->first > address || (x->access & access) != access)
            return false;
        if (x->last >= last)
            return true;
        address = x->last + 1; /* the next one has to begin here */
    }
    return false;
}

/* ==== 2  Changing ============================================================================= */

typedef struct change {
    uint64_t first, last;
    unsigned add, remove;
} change;

/* Windows as they come, those that go together made one; only counted where `out` is NULL. */
typedef struct pieces {
    dxpu_window *out, newest;
    uint32_t count;
} pieces;

static void piece(pieces *p, uint64_t first, uint64_t last, unsigned access)
{
    if (!access)
        return;
    if (p->count && p->newest.access == access && p->newest.last + 1 == first) {
        p->newest.last = last;
    } else {
        p->newest.first = first;
        p->newest.last = last;
        p->newest.access = access;
        p->count++;
    }
    if (p->out)
        p->out[p->count - 1] = p->newest;
}

/* What becomes of windows [low, high) and the gaps between them.  How many there are then. */
static uint32_t rewrite(const dxpu_windows *w, uint32_t low, uint32_t high, const change *c,
                        dxpu_window *out)
{
    pieces p = { out, { 0, 0, 0 }, 0 };
    uint64_t next = c->first; /* of the range, what has not been looked at */
    bool all = false;
    for (uint32_t i = low; i < high; i++) {
        dxpu_window x = w->at[i];
        uint64_t first = x.first > c->first ? x.first : c->first;
        uint64_t last = x.last < c->last ? x.last : c->last;
        if (x.first < c->first)
            piece(&p, x.first, x.last < c->first ? x.last : c->first - 1, x.access);
        if (!all && x.first > next)
            piece(&p, next, x.first <= c->last ? x.first - 1 : c->last, c->add);
        if (first <= last)
            piece(&p, first, last, (x.access | c->add) & ~c->remove);
        if (x.last > c->last)
            piece(&p, x.first > c->last ? x.first : c->last + 1, x.last, x.access);
        all = all || x.last >= c->last;
        if (x.last >= next)
            next = x.last + 1; /* 0 when that is all there is, and then `all` is set */
    }
    if (!all)
        piece(&p, next, c->last, c->add);
    return p.count;
}

static bool make_room(dxpu_windows *w, uint32_t count)
{
    uint32_t capacity = w->capacity ? w->capacity : 16;
    dxpu_window *at;
    if (count <= w->capacity)
        return true;
    if (!w->resize)
        return false;
    while (capacity < count)
        capacity *= 2;
    at = w->resize(w->at, capacity * sizeof *at);
    if (!at)
        return false;
    w->at = at;
    w->capacity = capacity;
    return true;
}

static bool apply(dxpu_windows *w, const change *c)
{
    /* those that the range touches, and those that it may become one with */
    uint32_t low = find(w, c->first ? c->first - 1 : 0), high = low, count, all, beyond;
    while (high < w->count && (w->at[high].first <= c->last || w->at[high].first - 1 == c->last))
        high++;
    count = rewrite(w, low, high, c, NULL);
    all = w->count - (high - low) + count;
    beyond = all > w->count ? all : w->count;
    if (all > DXPU_WINDOWS_MAX || !make_room(w, beyond + count))
        return false;
    if (count) /* behind all, then to its place */
        (void)rewrite(w, low, high, c, w->at + beyond);
    if (w->count > high)
        memmove(w->at + low + count, w->at + high, (w->count - high) * sizeof *w->at);
    if (count)
        memcpy(w->at + low, w->at + beyond, count * sizeof *w->at);
    w->count = all;
    return true;
}

bool dxpu_windows_grant(dxpu_windows *w, uint64_t first, uint64_t last, unsigned access)
{
    change c = { first, last, access & (DXPU_WINDOW_READ | DXPU_WINDOW_WRITE), 0 };
    return apply(w, &c);
}

bool dxpu_windows_revoke(dxpu_windows *w, uint64_t first, uint64_t last, unsigned access)
{
    change c = { first, last, 0, access };
    uint32_t low, high;
    if (apply(w, &c))
        return true;
    low = high = find(w, first);
    while (high < w->count && w->at[high].first <= last)
        high++;
    if (w->count > high)
        memmove(w->at + low, w->at + high, (w->count - high) * sizeof *w->at);
    w->count -= high - low;
    return false;
}

bool dxpu_windows_copy(dxpu_windows *to, const dxpu_windows *from)
{
    to->count = 0;
    if (!make_room(to, from->count))
        return false;
    if (from->count)
        memcpy(to->at, from->at, from->count * sizeof *to->at);
    to->count = from->count;
    return true;
}

void dxpu_windows_clear(dxpu_windows *w)
{
    w->count = 0;
}

void dxpu_windows_init(dxpu_windows *w, dxpu_window *at, uint32_t capacity,
                       void *(*resize)(void *at, size_t bytes))
{
    w->at = at;
    w->count = 0;
    w->capacity = capacity;
    w->resize = resize;
}

/* ==== 3  Comparing ============================================================================ */

/* What is allowed at `address`, and the last address for which that holds; i is find()'s. */
static unsigned stretch(const dxpu_windows *w, uint32_t i, uint64_t address, uint64_t *last)
{
    if (i == w->count) {
        *last = UINT64_MAX;
        return 0;
    }
    *last = w->at[i].first <= address ? w->at[i].last : w->at[i].first - 1;
    return w->at[i].first <= address ? w->at[i].access : 0;
}

bool dxpu_windows_differ(const dxpu_windows *is, const dxpu_windows *to_be, uint64_t from,
                         dxpu_windows_change *out)
{
    uint32_t i = find(is, from), k = find(to_be, from);
    for (;;) {
        uint64_t last_is, last_be;
        out->first = from;
        out->is = stretch(is, i, from, &last_is);
        out->to_be = stretch(to_be, k, from, &last_be);
        out->last = last_is < last_be ? last_is : last_be;
        if (out->is != out->to_be)
            return true;
        if (out->last == UINT64_MAX)
            return false;
        from = out->last + 1;
        i += i < is->count && is->at[i].last < from;
        k += k < to_be->count && to_be->at[k].last < from;
    }
}

/* ==== 4  Link events ========================================================================== */

bool dxpu_windows_event(dxpu_windows *w, const dxpu_event *e)
{
    uint64_t last = e->base + (e->length - 1);
    unsigned access = (e->flags & DXPU_EVENT_READ ? DXPU_WINDOW_READ : 0u) |
                      (e->flags & DXPU_EVENT_WRITE ? DXPU_WINDOW_WRITE : 0u);
    if (e->length == 0 || last < e->base)
        return false;
    if (e->type == DXPU_EVENT_DMA_GRANT)
        return dxpu_windows_grant(w, e->base, last, access);
    return e->type == DXPU_EVENT_DMA_REVOKE && dxpu_windows_revoke(w, e->base, last, access);
}
