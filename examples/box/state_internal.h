/* state_internal.h - the file of leases and its lines: of state.c and its tests
   SPDX-License-Identifier: MIT */
#ifndef STATE_INTERNAL_H_INCLUDED
#define STATE_INTERNAL_H_INCLUDED

#include "dxpu.h"
#include "state.h"

#include <pthread.h>
#include <stdio.h>

/* One line of the file. */
typedef struct state_lease {
    unsigned slot, node, host_slot;
    unsigned long long epoch;
    uint8_t phase;
    uint64_t medium; /* 0: none */
    state_key key;
} state_lease;

/* Progress of a slot's requested change. */
enum { IDLE, WANTED, KEPT, REFUSED };

typedef struct state_line {
    state_lease kept;   /* on disk, as far as is known */
    state_lease wanted; /* from WANTED on, until it is reported */
    uint8_t state;      /* IDLE.. */
    bool written;       /* of WANTED: by the write that is under way */
} state_line;

/* The whole file: the loops that change it do not look into each other's tables. */
struct state_file {
    pthread_mutex_t writing; /* held while the file is written: by jobs alone */
    pthread_mutex_t lock;    /* of the lines; no disk is waited for under it */
    const char *file;
    state_line
        *lines; /* of the box's slots in their order, then those that this run does not have */
    size_t count;
    unsigned slots, loops;
    struct state_writer *writers;
    int only; /* of FILE.lock: the file itself is replaced, and a lock on it with it */
};

/* As state_open(), of a file that nothing is known of yet: 0, or an exit status after a message. */
int state_read(state_file *s, const dxpu_box_table *t, uint8_t *phase, uint64_t *medium,
               state_key *key);
/* A line of it. */
state_lease state_lease_of(const dxpu_box_entry *e, uint8_t phase, uint64_t medium,
                           const state_key *key);
void state_print(FILE *f, const state_lease *l);

#endif /* STATE_INTERNAL_H_INCLUDED */
