/* identity_file.c - see identity_file.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* flock(), getentropy() */
#endif
#include "identity_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_BYTES = 2 * IDENTITY_BYTES + 1 /* hexadecimal, and the end of the line */ };

static int complain(const char *program, const char *file, const char *what)
{
    fprintf(stderr, "%s: --identity %s: %s\n", program, file, what);
    return -1;
}

static int complain_system(const char *program, const char *file, const char *what)
{
    char text[200];
    snprintf(text, sizeof text, "%s: %s; name a file in a folder that may be written", what,
             strerror(errno));
    return complain(program, file, text);
}

/* The name is durable once the folder is. */
static int sync_folder(const char *file)
{
    char path[4096];
    int fd, rc;
    snprintf(path, sizeof path, "%s", file);
    fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    rc = fsync(fd);
    close(fd);
    return rc;
}

static int make(int fd, const char *program, const char *file, uint8_t out[IDENTITY_BYTES])
{
    char text[TEXT_BYTES + 1];
    if (getentropy(out, IDENTITY_BYTES))
        return complain_system(program, file, "no random numbers");
    for (unsigned i = 0; i < IDENTITY_BYTES; i++)
        snprintf(text + (size_t)2 * i, 4, "%02x\n", out[i]);
    if (write(fd, text, TEXT_BYTES) != TEXT_BYTES || fsync(fd) || sync_folder(file))
        return complain_system(program, file, "cannot be written");
    return 0;
}

static int digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bool parse(const char *text, ssize_t len, uint8_t out[IDENTITY_BYTES])
{
    uint8_t any = 0;
    if (len != TEXT_BYTES || text[TEXT_BYTES - 1] != '\n')
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

int identity_file_open(const char *program, const char *file, uint8_t out[IDENTITY_BYTES])
{
    char text[TEXT_BYTES + 1];
    ssize_t len;
    /* it stays open as long as the process lives, and with it the lock */
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return complain_system(program, file, "cannot be opened");
    if (flock(fd, LOCK_EX | LOCK_NB))
        return complain(program, file,
                        "another proxy has it; give each proxy of this machine its own file");
    len = read(fd, text, sizeof text);
    if (len < 0)
        return complain_system(program, file, "cannot be read");
    if (len == 0)
        return make(fd, program, file, out);
    if (!parse(text, len, out))
        return complain(program, file,
                        "not 32 hexadecimal digits and the end of the line; remove it to be "
                        "another proxy from now on");
    return 0;
}
