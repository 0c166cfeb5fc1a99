/* guard.h - the guard of a slot of dxpu-box: dxpu_guard.h in memory from malloc()
   SPDX-License-Identifier: MIT */
#ifndef GUARD_H_INCLUDED
#define GUARD_H_INCLUDED

#include "dxpu_guard.h"

enum { GUARD_REQUESTS = 1024 };

/* For a slot without a channel: holds no memory. */
void guard_init(dxpu_guard *g, const dxpu_guard_allowed *allowed);
/* A channel is up: nothing is granted, known or asked.  0, or -1 out of memory.  Only from here to
   guard_end() may dxpu_guard_*() be called for the channel's TLPs and events. */
int guard_begin(dxpu_guard *g);
/* The channel is over; also without one.  Counters stay. */
void guard_end(dxpu_guard *g);

#endif /* GUARD_H_INCLUDED */
