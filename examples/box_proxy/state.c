/* state.c - see state.h
   SPDX-License-Identifier: MIT */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <unistd.h>

static int complain(const char *what, const char *file)
{
    fprintf(stderr, "dxpu-box: cannot %s --state %s: %s\n", what, file, strerror(errno));
    return -1;
}

int state_read(const char *file, dxpu_box_table *t)
{
    unsigned slot, node, host_slot;
    unsigned long long epoch;
    int n;
    FILE *f = fopen(file, "r");
    if (!f)
        return errno == ENOENT ? 0 : complain("read", file);
    while ((n = fscanf(f, "%u %llu %u %u", &slot, &epoch, &node, &host_slot)) == 4) {
        dxpu_box_entry *e = slot <= 0xffffu ? dxpu_box_slot(t, (uint16_t)slot) : NULL;
        if (!e) /* fewer slots than last time: those are not lent at all */
            continue;
        e->epoch_seen = epoch;
        e->host_node = node; /* whose lease it is: the same epoch is nobody else's */
        e->host_slot = (uint16_t)host_slot;
    }
    fclose(f);
    if (n != EOF) {
        errno = EINVAL;
        return complain("understand", file);
    }
    return 0;
}

/* The rename is durable once the directory is. */
static int sync_directory(const char *file)
{
    char path[1024];
    int fd, rc;
    snprintf(path, sizeof path, "%s", file);
    fd = open(dirname(path), O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -1;
    rc = fsync(fd);
    close(fd);
    return rc;
}

int state_write(const char *file, const dxpu_box_table *t)
{
    char temporary[1024];
    FILE *f;
    bool good;
    if (snprintf(temporary, sizeof temporary, "%s.new", file) >= (int)sizeof temporary) {
        errno = ENAMETOOLONG;
        return complain("write", file);
    }
    f = fopen(temporary, "w");
    if (!f)
        return complain("write", file);
    for (uint32_t i = 0; i < t->count; i++) {
        const dxpu_box_entry *e = &t->entries[i];
        fprintf(f, "%u %llu %u %u\n", i + 1, (unsigned long long)e->epoch_seen, e->host_node,
                e->host_slot);
    }
    good = !fflush(f) && !fsync(fileno(f));
    if (fclose(f) || !good || rename(temporary, file) || sync_directory(file))
        return complain("write", file);
    return 0;
}
