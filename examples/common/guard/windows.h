/* windows.h - tables of dxpu_windows.h in memory from malloc()
   SPDX-License-Identifier: MIT

   An object whose bytes are 0 is an empty table, which grows to DXPU_WINDOWS_MAX windows.  What
   each function does is in dxpu_windows.h. */
#ifndef WINDOWS_H_INCLUDED
#define WINDOWS_H_INCLUDED

#include "dxpu_windows.h"

enum { WINDOW_READ = DXPU_WINDOW_READ, WINDOW_WRITE = DXPU_WINDOW_WRITE };

typedef dxpu_windows windows;
typedef dxpu_windows_change windows_change;

void windows_free(windows *w);
bool windows_grant(windows *w, uint64_t first, uint64_t last, unsigned access);
bool windows_revoke(windows *w, uint64_t first, uint64_t last, unsigned access);
bool windows_copy(windows *to, const windows *from);
bool windows_event(windows *w, const dxpu_event *e);

#define windows_clear  dxpu_windows_clear
#define windows_allow  dxpu_windows_allow
#define windows_at     dxpu_windows_at
#define windows_differ dxpu_windows_differ

#endif /* WINDOWS_H_INCLUDED */
