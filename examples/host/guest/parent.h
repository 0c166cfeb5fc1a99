/* parent.h - the processes of a dxpu-host that serves virtual machines: who starts and watches them
   SPDX-License-Identifier: MIT

   One keeper for each guest (keeper.h), and one worker for all (guests.h), which is started again
   when it ends without having been asked to.  The parent has the signals.  It reads nothing that
   comes from a guest or the network, and it holds a duplicate of each guest's connections, so that
   this is shut down and read empty also when its keeper is killed (V-33). */
#ifndef PARENT_H_INCLUDED
#define PARENT_H_INCLUDED

#include "keeper.h"

enum { PARENT_GUESTS_MAX = 64 };

/* Beside PROGRAM_ASK_*: the guest n (in the lower bits) is gone for good. */
enum { PARENT_ASK_ABANDON = 0x80 };

/* What the worker says by keeper_tell(), once: all is open, and it serves from now on. */
enum { PARENT_SERVED = 'W' };

typedef struct parent_settings {
    const keeper_settings *keeper; /* of each guest */
    unsigned guests;
    /* The worker, in a process of its own: links to the keepers, which it takes over; was there one
       before it; the key of what keepers remember, the same for all workers; and where the parent
       asks (program.h).  The exit status. */
    int (*worker)(const crossing_fds *links, bool again, const uint8_t key[CROSSING_KEY_BYTES],
                  int parent);
} parent_settings;

/* Until all have ended: the exit status. */
int parent_run(const parent_settings *set);

#endif /* PARENT_H_INCLUDED */
