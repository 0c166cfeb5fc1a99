/* open_files.c - see open_files.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "open_files.h"

#include <sys/resource.h>

uint64_t open_files_allow(uint64_t want)
{
    struct rlimit r, raised;
    if (getrlimit(RLIMIT_NOFILE, &r))
        return want; /* unknown: opening says so */
    raised = r;
    if (r.rlim_cur < want)
        raised.rlim_cur = r.rlim_max < want ? r.rlim_max : (rlim_t)want;
    return setrlimit(RLIMIT_NOFILE, &raised) ? r.rlim_cur : raised.rlim_cur;
}
