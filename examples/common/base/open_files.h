/* open_files.h - how many descriptors this process may have
   SPDX-License-Identifier: MIT */
#ifndef OPEN_FILES_H_INCLUDED
#define OPEN_FILES_H_INCLUDED

#include <stdint.h>

/* Raise the limit (RLIMIT_NOFILE) to `want`, or as far as it may be raised.  The limit, which is
   below `want` when that is not allowed. */
uint64_t open_files_allow(uint64_t want);

/* What helps then, for a message. */
#define OPEN_FILES_REMEDY "raise the limit (ulimit -Hn; LimitNOFILE= of a systemd unit)"

#endif /* OPEN_FILES_H_INCLUDED */
