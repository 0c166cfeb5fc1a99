/* dxpu_windows.h - which addresses may be read and written: ranges, sorted, the rest is denied
   SPDX-License-Identifier: MIT

   A table maps addresses to the access that is allowed there; neighbouring ranges with the same
   access are one window.  Its size is bounded: a range without a place is not allowed.  Addresses
   are 64-bit, and a range is named by its first and last address, so that it may end at 2^64 - 1.

   The memory is the caller's: `capacity` windows, or as many as resize() gives.  A change builds
   the new windows behind the present ones, and needs room for up to five more than are in force:
   five for a range in the middle of a window. */
#ifndef DXPU_WINDOWS_H_INCLUDED
#define DXPU_WINDOWS_H_INCLUDED

#include "dxpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DXPU_WINDOW_READ = 1, DXPU_WINDOW_WRITE = 2 };
enum { DXPU_WINDOWS_MAX = 8192 }; /* of one table; 24 bytes each */

typedef struct dxpu_window {
    uint64_t first, last;
    unsigned access; /* DXPU_WINDOW_READ | DXPU_WINDOW_WRITE, never 0 */
} dxpu_window;

typedef struct dxpu_windows {
    dxpu_window *at; /* in rising order */
    uint32_t count, capacity;
    void *(*resize)(void *at, size_t bytes); /* as realloc(); NULL: `capacity` is all there is */
} dxpu_windows;

/* Make an empty table in the caller's memory; at is NULL and capacity 0 when resize() gives it. */
void dxpu_windows_init(dxpu_windows *w, dxpu_window *at, uint32_t capacity,
                       void *(*resize)(void *at, size_t bytes));
/* Remove all windows. */
void dxpu_windows_clear(dxpu_windows *w);
/* Allow `access` in [first, last], besides what is allowed already.  False: the table is full, and
   nothing has changed.  O(log n) and moving what follows. */
bool dxpu_windows_grant(dxpu_windows *w, uint64_t first, uint64_t last, unsigned access);
/* Forbid `access` in [first, last].  False: the table was full, and more has been forbidden: all of
   the windows that the range touches. */
bool dxpu_windows_revoke(dxpu_windows *w, uint64_t first, uint64_t last, unsigned access);
/* Make `to` what `from` is; false: out of memory, `to` is empty. */
bool dxpu_windows_copy(dxpu_windows *to, const dxpu_windows *from);

/* Is all of `access` allowed in every one of `bytes` bytes?  False for none, and for a range that
   wraps around.  O(log n + windows touched). */
bool dxpu_windows_allow(const dxpu_windows *w, uint64_t address, uint64_t bytes, unsigned access);
/* The access that is allowed at one address. */
unsigned dxpu_windows_at(const dxpu_windows *w, uint64_t address);
/* Of windows in rising order, the first that does not end before `address`; count: none.
   O(log n). */
uint32_t dxpu_windows_find(const dxpu_window *at, uint32_t count, uint64_t address);

/* A range in which `is` allows one thing and `to_be` another. */
typedef struct dxpu_windows_change {
    uint64_t first, last;
    unsigned is, to_be;
} dxpu_windows_change;
/* The first one from address `from` on; false: from there on they are alike.  O(windows passed). */
bool dxpu_windows_differ(const dxpu_windows *is, const dxpu_windows *to_be, uint64_t from,
                         dxpu_windows_change *out);

/* Apply a link event DMA_GRANT or DMA_REVOKE.  False when it could not be (see above), or names no
   range of addresses: nothing has changed then. */
bool dxpu_windows_event(dxpu_windows *w, const dxpu_event *e);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_WINDOWS_H_INCLUDED */
