/* dxpu_vfio_user_copy.h - copies that survive memory which is taken away; part of dxpu_vfio_user.c
   SPDX-License-Identifier: MIT */
#ifndef DXPU_VFIO_USER_COPY_H_INCLUDED
#define DXPU_VFIO_USER_COPY_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>

/* Catches SIGBUS in this process, unless that is done; what is not a fault of vfu_copy() goes on to
   the previous handler. */
void vfu_copy_start(void);

/* Copies n bytes from or to guest memory at `host`.  False when a page of it is missing: the client
   has truncated the file, or the system has no page for a hole.  A part may then be copied.
   A write is made in rising address order, its last 64 bytes in aligned units of at most 8. */
bool vfu_copy(void *local, void *host, size_t n, bool write);

#endif /* DXPU_VFIO_USER_COPY_H_INCLUDED */
