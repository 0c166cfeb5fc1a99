/* directory_sync.h - an fsync() that fails for directories when a test says so: then a file is
   whole, and its name is not on the disk
   SPDX-License-Identifier: MIT

   Included once in a program; _DEFAULT_SOURCE or more before the first header. */
#ifndef DIRECTORY_SYNC_H_INCLUDED
#define DIRECTORY_SYNC_H_INCLUDED

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool directory_sync_fails;
static unsigned directory_syncs_fail; /* or the next ones alone, that many */

int fsync(int fd)
{
    struct stat st;
    if ((directory_sync_fails || directory_syncs_fail) && fstat(fd, &st) == 0 &&
        S_ISDIR(st.st_mode)) {
        directory_syncs_fail -= directory_syncs_fail != 0;
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

#endif /* DIRECTORY_SYNC_H_INCLUDED */
