/* state.h - the highest lease epoch of each slot, in a file, and whether it is lent: fencing must
   survive a restart, and so must a lease of a manager
   SPDX-License-Identifier: MIT

   The disk may take long: who has something written goes on, and is notified later. */
#ifndef STATE_H_INCLUDED
#define STATE_H_INCLUDED

#include "dxpu_sodium.h"
#include "jobs.h"

/* The public key that a lease names (M-83), and which lease it is, and whose (M-174). */
typedef struct state_key {
    uint64_t lease, tenant; /* lease 0: unknown */
    bool known;             /* the key is */
    uint8_t key[DXPU_NOISE_KEY_BYTES];
} state_key;

typedef struct state_file state_file;
/* What was wanted of a slot is on disk, or refused. */
typedef void (*state_result)(void *user, unsigned number, bool kept);

/* Lock the file against other boxes, by FILE.lock, and fill the table, whose slots are all there
   are, from lines of `slot epoch host_node host_slot [state [medium] [key=KEY]
   [lease=NUMBER:TENANT]]`, and of its slots
   phase[] from the state's word, a control state from "held" to "unwiped", none: "empty", medium[],
   the number of what the state speaks of, none: 0, and key[].  A file that does not exist yet is
   empty.  phase NULL: there is no manager, and a file with states is refused, for nothing would end
   those leases.
   loops   of the box: slot n is in loop (n - 1) mod loops
   status  after a message, when NULL is returned: PROGRAM_SYSTEM or, for what the file says,
           PROGRAM_DAMAGED, PROGRAM_USAGE */
state_file *state_open(const char *file, unsigned loops, const dxpu_box_table *t, uint8_t *phase,
                       uint64_t *medium, state_key *key, int *status);
/* A slot's line is to say this, and of this medium; not on disk yet, and before others write. */
void state_note(state_file *s, const dxpu_box_entry *e, uint8_t phase, uint64_t medium,
                const state_key *key);
/* Write it, before any slot is used: better no box than one that finds out at the first lease.  0,
   or PROGRAM_SYSTEM after a message. */
int state_begin(state_file *s);
/* Before its slots are used: writes for this loop are jobs of *j, which outlives the state, and
   what became of them is reported in state_work(). */
void state_serve(state_file *s, unsigned loop, const jobs *j, state_result result, void *user);

/* These five in the slot's loop, which they never hold up (S-165). */

/* A slot is to be as *e says, `phase`, `medium` and *key: result() follows, and until then nothing
   more is requested of the slot.  One write takes all requests by then, of all loops.
   Not kept, after a message: the file is as it was, or, when its directory could not be synced,
   twice, may say this after a crash: as if the answer had been lost, which a manager repeats
   (M-54). */
void state_want(state_file *s, const dxpu_box_entry *e, uint8_t phase, uint64_t medium,
                const state_key *key);
/* Has another slot's line, as it is on disk or requested, a tenant's data on this medium, or data
   that are still to be wiped? */
bool state_promises(state_file *s, unsigned number, uint64_t medium);
/* The same of a tenant's data alone: the other slot is lent, or keeps them. */
bool state_uses(state_file *s, unsigned number, uint64_t medium);
/* Report what became of it; when the loop was woken for a job. */
void state_work(state_file *s, unsigned loop);
/* Is a write for this loop under way? */
bool state_writes(const state_file *s, unsigned loop);

/* The loops are over: what is requested is written, and nothing reported.  NULL is allowed. */
void state_close(state_file *s);

#endif /* STATE_H_INCLUDED */
