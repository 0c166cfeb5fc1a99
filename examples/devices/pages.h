/* pages.h - a device's memory, which a reset makes zero at once, however much of it was written
   SPDX-License-Identifier: MIT */
#ifndef PAGES_H_INCLUDED
#define PAGES_H_INCLUDED

#include "device.h"

typedef struct pages {
    uint8_t *bytes;
    size_t size;
    bool sparse;    /* may be larger than the machine's memory */
    uint64_t dirty; /* bytes from the start that may not be 0 any more: pages_written() */
    unsigned away;  /* jobs that have not come back */
    jobs jobs;
    bool others;     /* the jobs are its owner's, who takes them back */
    jobs_queue done; /* of those run here */
} pages;

/* Zeroed; only what is written takes memory.  s->jobs may be NULL.  0, or -1: no memory; with
   `sparse` that comes out only as it is written. */
int pages_open(pages *p, uint64_t size, bool sparse, const device_settings *s);
/* The same with jobs that are not for it alone: the owner calls pages_given_back() for each that it
   takes back, all of them before pages_close(). */
int pages_open_for(pages *p, uint64_t size, bool sparse, const jobs *j);
bool pages_given_back(job *j); /* it was one of these, and is freed */
/* In the owner's tick: take such jobs back, unless they are the owner's. */
void pages_reap(pages *p);
void pages_close(pages *p); /* also what could not be opened */
/* All of it is 0 again.  New pages take the place of the old, which a job gives back: that takes
   some 0.1 ms for each MB that was written. */
void pages_clear(pages *p);

/* Bytes before this one are about to be written. */
static inline void pages_written(pages *p, uint64_t end)
{
    p->dirty = end > p->dirty ? end : p->dirty;
}

#endif /* PAGES_H_INCLUDED */
