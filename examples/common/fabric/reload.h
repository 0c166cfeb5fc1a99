/* reload.h - reads --peers again in a thread, on SIGHUP
   SPDX-License-Identifier: MIT

   A file system or name server that does not answer must not stop the loop that carries TLPs, so a
   thread reads the file.  The keys change in the loop, when all of it has been read. */
#ifndef RELOAD_H_INCLUDED
#define RELOAD_H_INCLUDED

#include "keys.h"

#include <event2/event.h>

typedef struct reload reload;

/* changed(user) is called in the loop of `base` after the keys have changed.  NULL after a
   message. */
reload *reload_new(struct event_base *base, keys *k, void (*changed)(void *user), void *user);
/* Read the file; when it is being read already, once more behind that. */
void reload_start(reload *r);
/* NULL is allowed.  The process ends: keys that the thread still reads are abandoned (keys.h). */
void reload_free(reload *r);

#endif /* RELOAD_H_INCLUDED */
