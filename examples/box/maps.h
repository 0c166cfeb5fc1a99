/* maps.h - windows of a host's memory as a vfio-user server knows them
   SPDX-License-Identifier: MIT

   A server takes back exactly what it was given, so a window that grows beside another stays one of
   its own here, although the two are one to the host: what a server uses is not taken away because
   its neighbour is granted. */
#ifndef MAPS_H_INCLUDED
#define MAPS_H_INCLUDED

#include "dxpu_windows.h"

typedef struct maps {
    dxpu_windows is; /* what the server may ask for */
    dxpu_window *at; /* the pieces that it was given, in rising order */
    uint32_t count, capacity;
    bool rebuilds; /* there are many more pieces than windows: all go, and come back joined */
} maps;

/* What to say to the server next: map or unmap `window`. */
typedef struct maps_step {
    dxpu_window window;
    bool add;
} maps_step;

void maps_init(maps *m);
void maps_free(maps *m);
/* The server knows nothing. */
void maps_clear(maps *m);
/* The first step from address *from on to what `to_be` allows; false: there is none.  O(windows
   passed). */
bool maps_next(maps *m, const dxpu_windows *to_be, uint64_t *from, maps_step *out);
/* The server is sent the step; *from is where to go on.  False: out of memory, nothing has
   changed. */
bool maps_did(maps *m, const maps_step *s, uint64_t *from);

#endif /* MAPS_H_INCLUDED */
