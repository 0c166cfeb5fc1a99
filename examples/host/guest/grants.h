/* grants.h - what a box knows that its device may reach, and what it is to learn
   SPDX-License-Identifier: MIT */
#ifndef GRANTS_H_INCLUDED
#define GRANTS_H_INCLUDED

#include "windows.h"

typedef struct grants {
    windows told, wanted;
    uint64_t from;   /* below this they are alike */
    bool waits;      /* the slot's queue has a place for what is to be sent */
    uint64_t events; /* sent so far */
    uint64_t no_room;
} grants;

void grants_free(grants *g);
/* Another channel: its box knows nothing. */
void grants_clear(grants *g);
/* `wanted` has been changed.  True: there is something to send. */
bool grants_changed(grants *g);
/* The next event to send; false when all has been sent. */
bool grants_next(grants *g, dxpu_event *out);
/* It was sent. */
void grants_sent(grants *g, const dxpu_event *e);

#endif /* GRANTS_H_INCLUDED */
