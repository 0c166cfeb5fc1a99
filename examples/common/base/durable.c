/* durable.c - see durable.h
   SPDX-License-Identifier: MIT */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "durable.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
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

static bool write_all(int fd, const char *bytes, size_t len)
{
    while (len) {
        ssize_t put = write(fd, bytes, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        bytes += put;
        len -= (size_t)put;
    }
    return true;
}

int durable_replace(const char *file, const void *bytes, size_t len)
{
    char temporary[PATH_BYTES];
    bool good;
    int fd;
    if (snprintf(temporary, sizeof temporary, "%s.new", file) >= (int)sizeof temporary) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    good = write_all(fd, bytes, len) && !fsync(fd);
    if (close(fd) || !good)
        return -1;
    if (rename(temporary, file))
        return -1;
    return durable_name(file) ? 1 : 0;
}
