/* durable.h - a file that is replaced as a whole, and is there after a crash
   SPDX-License-Identifier: MIT */
#ifndef DURABLE_H_INCLUDED
#define DURABLE_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The file has these bytes, on disk, when it returns 0; mode 600 when it is new.  At every moment
   it is the old one or the new one, whole.  Otherwise errno says why, and
     -1  it is the old one, now and after a crash;
      1  it is the new one, and its directory could not be synced: after a crash it may be either.
   Until a later replace returns 0, the caller of one that returned 1 must assume both: it may
   neither report the new one as kept nor rely on the old one being found again. */
int durable_replace(const char *file, const void *bytes, size_t len);

/* The same for a file that people edit: with this mode, whatever the umask, owner and group, where
   (uid_t)-1 and (gid_t)-1 are those of any file that is made there.  When it returns -1 nothing is
   left beside it. */
int durable_replace_as(const char *file, const void *bytes, size_t len, mode_t mode, uid_t owner,
                       gid_t group);

/* Writes all of it, in as many calls as that takes; false with errno. */
bool durable_write(int fd, const void *bytes, size_t len);

/* Rename a file within its directory.  As durable_replace(): 0, or -1 or 1 with errno. */
int durable_rename(const char *from, const char *to);

/* Make the name of a new or renamed file durable.  0, or -1 with errno: a crash may undo it. */
int durable_name(const char *file);

#endif /* DURABLE_H_INCLUDED */
