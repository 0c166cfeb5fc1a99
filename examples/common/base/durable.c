/* durable.c - see durable.h
   SPDX-License-Identifier: MIT */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "durable.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

int durable_name(const char *file)
{
    char path[PATH_BYTES];
    int fd, rc;
    snprintf(path, sizeof path, "%s", file);
    fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    rc = fsync(fd);
    (void)close(fd);
    return rc;
}

bool durable_write(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len) {
        ssize_t put = write(fd, at, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            errno = put ? errno : EIO;
            return false;
        }
        at += put;
        len -= (size_t)put;
    }
    return true;
}

static bool name_beside(const char *file, char temporary[PATH_BYTES])
{
    if (snprintf(temporary, PATH_BYTES, "%s.new", file) < PATH_BYTES)
        return true;
    errno = ENAMETOOLONG;
    return false;
}

/* Syncs and closes fd, which holds the whole of a file.  False with errno. */
static bool finish(int fd, bool good)
{
    int error;
    good = good && !fsync(fd);
    error = errno;
    if (close(fd))
        return false;
    errno = error;
    return good;
}

int durable_rename(const char *from, const char *to)
{
    if (rename(from, to))
        return -1;
    return durable_name(to) ? 1 : 0;
}

int durable_replace(const char *file, const void *bytes, size_t len)
{
    char temporary[PATH_BYTES];
    int fd;
    if (!name_beside(file, temporary))
        return -1;
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || !finish(fd, durable_write(fd, bytes, len)))
        return -1;
    return durable_rename(temporary, file);
}

/* A new file is this process's, and its group may be the directory's. */
static bool give_to(int fd, uid_t owner, gid_t group)
{
    struct stat st;
    if (fstat(fd, &st))
        return false;
    if (owner == st.st_uid)
        owner = (uid_t)-1;
    if (group == st.st_gid)
        group = (gid_t)-1;
    return (owner == (uid_t)-1 && group == (gid_t)-1) || !fchown(fd, owner, group);
}

/* What an earlier process left, or put in the way, is not written to. */
int durable_replace_as(const char *file, const void *bytes, size_t len, mode_t mode, uid_t owner,
                       gid_t group)
{
    char temporary[PATH_BYTES];
    int fd, error, rc = -1;
    if (!name_beside(file, temporary))
        return -1;
    (void)unlink(temporary);
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if (finish(fd, durable_write(fd, bytes, len) && give_to(fd, owner, group) && !fchmod(fd, mode)))
        rc = durable_rename(temporary, file);
    error = errno;
    if (rc < 0)
        (void)unlink(temporary);
    errno = error;
    return rc;
}
