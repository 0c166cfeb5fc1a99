/* identity_file.c - see identity_file.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* flock(), getentropy() */
#endif
#include "identity_file.h"
#include "log.h"

#include "durable.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int complain(const char *file, const char *what, int status)
{
    log_error("--identity %s: %s", file, what);
    return status;
}

static int complain_system(const char *file, const char *what)
{
    char text[200];
    snprintf(text, sizeof text,
             "%s: %s; name a file in a writable directory, with room on its disk", what,
             strerror(errno));
    return complain(file, text, PROGRAM_SYSTEM);
}

/* The whole file, or as much as `room` takes; less than 0: errno says why. */
static ssize_t read_text(int fd, char *to, size_t room)
{
    size_t got = 0;
    while (got < room) {
        ssize_t more = read(fd, to + got, room - got);
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            return more < 0 ? -1 : (ssize_t)got;
        got += (size_t)more;
    }
    return (ssize_t)got;
}

/* In place, not by durable_replace(): the lock is on this very file. */
static int make(int fd, const char *file, uint8_t out[IDENTITY_BYTES])
{
    char text[IDENTITY_TEXT_BYTES + 1];
    if (getentropy(out, IDENTITY_BYTES))
        return complain_system(file, "cannot get random numbers");
    for (unsigned i = 0; i < IDENTITY_BYTES; i++)
        snprintf(text + (size_t)2 * i, 4, "%02x\n", out[i]);
    if (durable_write(fd, text, IDENTITY_TEXT_BYTES) && !fsync(fd) && !durable_name(file))
        return 0;
    complain_system(file, "cannot be written");
    (void)!ftruncate(fd, 0); /* nothing, rather than a part, for the next start */
    return PROGRAM_SYSTEM;
}

static int digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

bool identity_file_parse(const char *text, size_t len, uint8_t out[IDENTITY_BYTES])
{
    uint8_t any = 0;
    if (len != IDENTITY_TEXT_BYTES || text[IDENTITY_TEXT_BYTES - 1] != '\n')
        return false;
    for (unsigned i = 0; i < IDENTITY_BYTES; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
        any |= out[i];
    }
    return any != 0; /* M-40: not all 0 */
}

int identity_file_open(const char *file, uint8_t out[IDENTITY_BYTES])
{
    char text[IDENTITY_TEXT_BYTES + 1];
    struct stat st;
    ssize_t len;
    /* it stays open as long as the process lives, and with it the lock */
    int fd;
    do {
        fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0 || fstat(fd, &st))
        return complain_system(file, "cannot be opened");
    if (!S_ISREG(st.st_mode)) /* from a pipe it would wait */
        return complain(file, "is not a regular file; name another", PROGRAM_USAGE);
    if (flock(fd, LOCK_EX | LOCK_NB))
        return complain(file, "another proxy uses it; give each proxy of this machine its own file",
                        PROGRAM_SYSTEM);
    len = read_text(fd, text, sizeof text);
    if (len < 0)
        return complain_system(file, "cannot be read");
    if (len == 0)
        return make(fd, file, out);
    if (!identity_file_parse(text, (size_t)len, out))
        return complain(file,
                        "not 32 hexadecimal digits and the end of the line; remove it to register "
                        "as a new proxy",
                        PROGRAM_DAMAGED);
    return 0;
}
