/* state.h - the highest lease epoch of each slot, in a file: fencing must survive a restart
   SPDX-License-Identifier: MIT */
#ifndef STATE_H_INCLUDED
#define STATE_H_INCLUDED

#include "dxpu.h"

/* Fill the table from lines of `slot epoch host_node host_slot`.  A file that does not exist yet is
   empty.  0, or -1 after a message. */
int state_read(const char *file, dxpu_box_table *t);
/* Replace the file; when it returns 0 the epochs are on disk.  -1 after a message.  It waits for
   the disk, and the loop with it: only a lease with a new epoch writes. */
int state_write(const char *file, const dxpu_box_table *t);
/* Free what state_read() keeps: lines of slots that the table does not have. */
void state_forget(void);

#endif /* STATE_H_INCLUDED */
