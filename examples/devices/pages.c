/* pages.c - see pages.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise() */
#endif
#include "pages.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LITTLE_BYTES = 64 << 10 /* are cleared as quickly as they are replaced */ };

/* Pages on their way back to the system. */
typedef struct old_pages {
    job job; /* first */
    void *bytes;
    size_t size;
    pages *owner;
} old_pages;

static void *map(size_t size, bool sparse)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (sparse ? MAP_NORESERVE : 0);
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* job.run */
static void unmap(job *j)
{
    const old_pages *old = (const old_pages *)j;
    (void)munmap(old->bytes, old->size);
}

void pages_reap(pages *p)
{
    job *j;
    while (p->away && !p->others && (j = p->jobs.reap(p->jobs.user)) != NULL)
        (void)pages_given_back(j);
}

int pages_open(pages *p, uint64_t size, bool sparse, const device_settings *s)
{
    p->size = (size_t)size;
    p->sparse = sparse;
    p->dirty = 0;
    p->away = 0;
    p->others = false;
    jobs_here(&p->done, &p->jobs);
    if (s->jobs)
        p->jobs = *s->jobs;
    p->bytes = p->size == size ? map(p->size, sparse) : NULL;
    return p->bytes ? 0 : -1;
}

int pages_open_for(pages *p, uint64_t size, bool sparse, const jobs *j)
{
    const device_settings s = { .jobs = j };
    int rc = pages_open(p, size, sparse, &s);
    p->others = true;
    return rc;
}

bool pages_given_back(job *j)
{
    if (j->run != unmap)
        return false;
    ((old_pages *)j)->owner->away--;
    free(j);
    return true;
}

void pages_close(pages *p)
{
    if (!p->bytes)
        return;
    if (p->away && !p->others) /* what never had any may be in a job itself */
        p->jobs.settle(p->jobs.user);
    pages_reap(p);
    (void)munmap(p->bytes, p->size);
}

void pages_clear(pages *p)
{
    old_pages *old;
    void *fresh;
    pages_reap(p);
    /* not while others are on their way, which a device that clears often would pile up */
    old = p->dirty > LITTLE_BYTES && !p->away ? calloc(1, sizeof *old) : NULL;
    fresh = old ? map(p->size, p->sparse) : NULL;
    if (fresh) {
        old->job.run = unmap;
        old->bytes = p->bytes;
        old->size = p->size;
        old->owner = p;
        p->away++;
        p->bytes = fresh;
        p->jobs.submit(p->jobs.user, &old->job);
    } else { /* little, or there is no room for both: then it is done here */
        free(old);
        if (p->dirty > LITTLE_BYTES && !madvise(p->bytes, p->size, MADV_DONTNEED))
            p->dirty = 0;
        memset(p->bytes, 0, (size_t)p->dirty);
    }
    p->dirty = 0;
}
