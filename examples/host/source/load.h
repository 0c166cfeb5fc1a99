/* load.h - a source that generates requests to the memory of a slot and checks what comes back
   SPDX-License-Identifier: MIT

   It enumerates the device, fills the memory it will touch (read, mixed), runs, and reads back what
   it wrote (write, mixed).  Every word's value follows from where and when it was written, so any
   loss, doubling, reordering or change shows. */
#ifndef LOAD_H_INCLUDED
#define LOAD_H_INCLUDED

#include "enumerate.h"
#include "link.h"

enum { LOAD_NONE, LOAD_READ, LOAD_WRITE, LOAD_MIXED };
enum { LOAD_DEPTH_MAX = 768 };

typedef struct load_settings {
    unsigned kind;    /* LOAD_READ.. */
    uint64_t size;    /* bytes of a read or write, a multiple of 4 up to 4096 */
    uint64_t depth;   /* reads in flight */
    uint64_t count;   /* operations, when seconds is 0 */
    uint64_t seconds; /* run that long instead */
    uint64_t span;    /* bytes of memory touched at most */
    uint64_t mps;     /* largest payload of a write */
} load_settings;

/* A read in flight. */
typedef struct load_read {
    uint64_t started_ns;
    uint64_t user; /* of the request; 0: it is over, and what still comes for it is dropped */
    uint32_t chunk, got_bytes;
    bool checked; /* of the run: counts and is timed */
    uint16_t next_free;
} load_read;

typedef struct load {
    host_link *link;
    const load_settings *set;
    enumerate device;
    unsigned phase;
    bool mps_told;
    uint64_t requests; /* non-posted ones so far */
    uint64_t asked;    /* the configuration request in flight, as load_read.user */
    uint64_t stride, chunks;
    uint32_t *written; /* generation of each chunk, 0: never */
    uint16_t *reading; /* reads of it in flight */
    load_read reads[LOAD_DEPTH_MAX];
    uint16_t free_read;
    unsigned in_flight;
    uint64_t cursor; /* of filling and reading back */
    bool writing;    /* a write of several TLPs is on its way */
    uint32_t write_chunk, write_at;
    uint32_t generation;
    uint64_t random;
    bool choice_made, choice_write; /* the operation that comes next */
    uint32_t choice_chunk;
    uint64_t begin_ns, end_ns, deadline_ns, elapsed_ns;
    uint64_t answer_ns, gap_ns; /* last answer of the run; longest time without one */
    uint64_t issued, reads_done, writes_done, bytes;
    uint64_t mismatched, unsuccessful, unanswered, verified, unsubmitted;
} load;

/* 0, or -1 after a message. */
int load_open(load *l, host_link *link, const load_settings *set);
void load_close(load *l);
source load_source(load *l);

#endif /* LOAD_H_INCLUDED */
