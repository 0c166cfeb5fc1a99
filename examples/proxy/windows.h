/* windows.h - which addresses may be read and written: ranges, sorted, the rest is denied
   SPDX-License-Identifier: MIT

   A table is a function from addresses to what is allowed there; neighbours that allow the same are
   one window.  Its size is bounded: what has no place is not allowed.  Addresses are 64-bit and
   ranges are named by their first and last one, so that they may end at 2^64. */
#ifndef WINDOWS_H_INCLUDED
#define WINDOWS_H_INCLUDED

#include "dxpu.h"

enum { WINDOW_READ = 1, WINDOW_WRITE = 2 };
enum { WINDOWS_MAX = 8192 }; /* of one table; 24 bytes each */

typedef struct windows_one {
    uint64_t first, last;
    unsigned access; /* WINDOW_READ | WINDOW_WRITE, never 0 */
} windows_one;

typedef struct windows {
    windows_one *at; /* in rising order */
    uint32_t count, capacity;
} windows;

/* An object whose bytes are 0 is an empty table. */
void windows_free(windows *w);
/* Allow nothing any more. */
void windows_clear(windows *w);
/* Allow `access` in [first, last], besides what is allowed already.  False: there is no place, and
   nothing has changed.  O(log n) and moving what follows. */
bool windows_grant(windows *w, uint64_t first, uint64_t last, unsigned access);
/* Forbid `access` in [first, last].  False: there was no place for the rest of a window, and more
   has been forbidden: all of the windows that the range touches. */
bool windows_revoke(windows *w, uint64_t first, uint64_t last, unsigned access);
/* Make `to` what `from` is; false: out of memory, `to` is empty. */
bool windows_copy(windows *to, const windows *from);

/* Is all of `access` allowed in every one of `bytes` bytes?  False for none, and for a range that
   wraps around.  O(log n + windows touched). */
bool windows_allow(const windows *w, uint64_t address, uint64_t bytes, unsigned access);
/* What is allowed at one address. */
unsigned windows_at(const windows *w, uint64_t address);

/* A range in which `is` allows one thing and `to_be` another. */
typedef struct windows_change {
    uint64_t first, last;
    unsigned is, to_be;
} windows_change;
/* The first one from address `from` on; false: from there on they are alike.  O(windows passed). */
bool windows_differ(const windows *is, const windows *to_be, uint64_t from, windows_change *out);

/* Apply a link event DMA_GRANT or DMA_REVOKE.  False when it could not be (see above), or names no
   range of addresses: nothing has changed then. */
bool windows_event(windows *w, const dxpu_event *e);

#endif /* WINDOWS_H_INCLUDED */
