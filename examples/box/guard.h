/* guard.h - the guard of a slot of dxpu-box: dxpu_guard.h in memory from malloc()
   SPDX-License-Identifier: MIT */
#ifndef GUARD_H_INCLUDED
#define GUARD_H_INCLUDED

#include "dxpu_guard.h"

enum { GUARD_REQUESTS = 1024 };

/* 0, or -1 out of memory. */
int guard_init(dxpu_guard *g, const dxpu_guard_allowed *allowed);
void guard_free(dxpu_guard *g);

#endif /* GUARD_H_INCLUDED */
