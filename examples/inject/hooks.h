/* SPDX-License-Identifier: MIT
   The wrappers: hook_NAME is exported as NAME.  The hidden name is there since the exported one may
   mean an address in the program. */
#ifndef DXPU_INJECT_HOOKS_H
#define DXPU_INJECT_HOOKS_H

#include "inject.h"

#pragma GCC visibility push(hidden)

#define HOOKED(base, suffix, version, per_thread, params, ...) CUresult hook_##base##suffix params;
#define HOOKED_PLAIN(base, suffix, version, params, args)      CUresult hook_##base##suffix params;
ENTRIES(HOOKED)
LOOKUPS(HOOKED_PLAIN)
LIFETIME(HOOKED_PLAIN)
#undef HOOKED
#undef HOOKED_PLAIN

/* Export hook_NAME, defined in the same file, as NAME. */
#define EXPORTED(base, suffix, params)                                                             \
    INJECT_EXPORT CUresult base##suffix params __attribute__((alias("hook_" #base #suffix)));

void inject_start(void); /* the settings, once, however early the first call comes */

#pragma GCC visibility pop

#endif
