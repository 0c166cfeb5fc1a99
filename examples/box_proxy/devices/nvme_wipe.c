/* nvme_wipe.c - erases the blocks of all namespaces, and reads them back
   SPDX-License-Identifier: MIT

   A step at a call: other slots' TLPs wait for no longer than one takes.  What is erased is on the
   medium before it is read, and is read from there. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* posix_fadvise() */
#endif
#include "nvme_model.h"

#include <errno.h>
#include <fcntl.h>

enum {
    ERASE_BYTES = 4 << 20,   /* in a step */
    SYNC_BYTES = 16 << 20,   /* erased and perhaps not on the medium yet */
    VERIFY_BYTES = 256 << 10 /* in a step */
};

static int wipe_failed(nvme *n, const char *what, int error)
{
    fprintf(stderr, "nvme: namespace %u: wipe: %s at byte %llu: %s\n", (unsigned)n->wipe.ns + 1,
            what, (unsigned long long)n->wipe.at, error ? strerror(error) : "not zero");
    if (error)
        nvme_failed(n, error);
    return DEVICE_UNWIPED;
}

static int wipe_erase(nvme *n, nvme_store *s)
{
    uint64_t left = s->size - n->wipe.at;
    uint64_t part = left < ERASE_BYTES ? left : ERASE_BYTES;
    if (nvme_store_zero(s, n->wipe.at, part, true))
        return wipe_failed(n, "erase", errno);
    n->wipe.at += part;
    if ((n->wipe.at % SYNC_BYTES == 0 || n->wipe.at == s->size) && nvme_store_sync(s))
        return wipe_failed(n, "sync", errno);
    if (n->wipe.at == s->size) {
        n->wipe.at = 0;
        n->wipe.erased = true;
        if (s->fd >= 0)
            (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return DEVICE_WIPING;
}

static int wipe_verify(nvme *n, nvme_store *s)
{
    static _Thread_local uint8_t bytes[VERIFY_BYTES]; /* each loop wipes its own slots */
    uint64_t left = s->size - n->wipe.at;
    size_t part = left < VERIFY_BYTES ? (size_t)left : VERIFY_BYTES;
    if (nvme_store_read(s, n->wipe.at, bytes, part))
        return wipe_failed(n, "read", errno);
    if (bytes[0] || memcmp(bytes, bytes + 1, part - 1) != 0)
        return wipe_failed(n, "verify", 0);
    if (s->fd >= 0) /* other readers need the memory more */
        (void)posix_fadvise(s->fd, (off_t)n->wipe.at, (off_t)part, POSIX_FADV_DONTNEED);
    n->wipe.at += part;
    if (n->wipe.at < s->size)
        return DEVICE_WIPING;
    n->wipe.at = 0;
    n->wipe.erased = false;
    return ++n->wipe.ns < n->ns_count ? DEVICE_WIPING : DEVICE_WIPED;
}

int nvme_wipe(void *device, bool begin)
{
    nvme *n = device;
    nvme_store *s;
    int rc;
    if (begin)
        memset(&n->wipe, 0, sizeof n->wipe);
    s = &n->ns[n->wipe.ns].store;
    rc = n->wipe.erased ? wipe_verify(n, s) : wipe_erase(n, s);
    if (rc == DEVICE_WIPED)
        n->broken = false; /* all of it could be written and read */
    return rc;
}
