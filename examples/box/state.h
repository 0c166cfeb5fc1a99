/* state.h - the highest lease epoch of each slot, in a file, and whether it is lent: fencing must
   survive a restart, and so must a lease of a manager
   SPDX-License-Identifier: MIT */
#ifndef STATE_H_INCLUDED
#define STATE_H_INCLUDED

#include "dxpu_sodium.h"

/* The public key that a lease names (M-83). */
typedef struct state_key {
    bool known;
    uint8_t key[DXPU_NOISE_KEY_BYTES];
} state_key;

/* Lock the file against other boxes, by FILE.lock, and fill the table, whose slots are all there
   are, from lines of `slot epoch host_node host_slot [state [medium] [key=KEY]]`, and of its slots
   phase[] from the state's word, a control state from "held" to "unwiped", none: "empty", medium[],
   the number of what the state speaks of, none: 0, and key[].  A file that does not exist yet is
   empty.  0, or after a message the exit status: PROGRAM_SYSTEM or, for what the file says,
   PROGRAM_DAMAGED.  phase NULL: there is no manager, and a file with states is
   refused (PROGRAM_USAGE), for nothing would end those leases. */
int state_open(const char *file, const dxpu_box_table *t, uint8_t *phase, uint64_t *medium,
               state_key *key);
/* A slot's line is to say this, and of this medium; not on disk yet, and before others write. */
void state_note(const dxpu_box_entry *e, uint8_t phase, uint64_t medium, const state_key *key);
/* Write it, before any slot is used: better no box than one that finds out at the first lease.  0,
   or PROGRAM_SYSTEM after a message. */
int state_begin(void);
/* A slot is as *e says, `phase`, `medium` and *key: when it returns 0 that is on disk.  Else,
   after a message, the file is as it was, or, when its directory could not be synced, twice, may
   say this after a crash: as if the answer had been lost, which the manager repeats (M-54).  It
   waits for the disk, and the loop with it: only a lease that begins or ends writes.  From any
   thread, each for its own slots: one at a time. */
int state_keep(const dxpu_box_entry *e, uint8_t phase, uint64_t medium, const state_key *key);
void state_close(void);

#endif /* STATE_H_INCLUDED */
