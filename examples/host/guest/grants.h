/* grants.h - what a box has been told that its device may reach, and what it is to be told
   SPDX-License-Identifier: MIT */
#ifndef GRANTS_H_INCLUDED
#define GRANTS_H_INCLUDED

#include "windows.h"

typedef struct grants {
    windows told, wanted;
    uint64_t from;   /* below this they are alike */
    bool waits;      /* the slot's queue has a place for what is to be told */
    uint64_t events; /* told so far */
    uint64_t no_room;
} grants;

void grants_free(grants *g);
/* Another channel: its box has been told nothing. */
void grants_clear(grants *g);
/* `wanted` has been changed.  True: there is something to tell. */
bool grants_changed(grants *g);
/* The next event to send; false when all has been told. */
bool grants_next(grants *g, dxpu_event *out);
/* It was sent. */
void grants_sent(grants *g, const dxpu_event *e);

#endif /* GRANTS_H_INCLUDED */
