/* durable.h - a file that is replaced as a whole, and is there after a crash
   SPDX-License-Identifier: MIT */
#ifndef DURABLE_H_INCLUDED
#define DURABLE_H_INCLUDED

#include <stddef.h>

/* The file has these bytes, on disk, when it returns 0; mode 600 when it is new.  At every moment
   it is the old one or the new one, whole.  -1 with errno: it is the old one, or, when its folder
   alone could not be synced, the new one until a crash perhaps brings the old one back. */
int durable_replace(const char *file, const void *bytes, size_t len);

#endif /* DURABLE_H_INCLUDED */
