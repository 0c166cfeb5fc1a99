/* shots.h - pictures of what slots show, for the control port
   SPDX-License-Identifier: MIT

   One at a time.  A slot's loop copies some rows in a turn; the PNG is made by a job. */
#ifndef SHOTS_H_INCLUDED
#define SHOTS_H_INCLUDED

#include "slots.h"

enum { SHOTS_PIXELS_PER_TURN = 64 << 10 };

typedef struct shots shots;

/* When the slots and b->requests are there.  NULL after a message. */
shots *shots_open(box *b);
void shots_close(shots *s); /* NULL is allowed; before the slots are closed */
/* DXPU_CONTROL_CODE_NONE: requests_picture() will be called; else why there is no picture. */
unsigned shots_begin(shots *s, unsigned number);

#endif /* SHOTS_H_INCLUDED */
