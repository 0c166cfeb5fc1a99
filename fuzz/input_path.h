/* input_path.h - the input as a file that a program opens by its path
   SPDX-License-Identifier: MIT

   Needs _GNU_SOURCE. */
#ifndef INPUT_PATH_H_INCLUDED
#define INPUT_PATH_H_INCLUDED

#include "input.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* In memory; the same file each time. */
static inline const char *input_path(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[32];
    if (fd < 0)
        fd = memfd_create("input", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

#endif /* INPUT_PATH_H_INCLUDED */
