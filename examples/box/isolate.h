/* isolate.h - a slot's model in a process of its own
   SPDX-License-Identifier: MIT */
#ifndef ISOLATE_H_INCLUDED
#define ISOLATE_H_INCLUDED

#include "device.h"
#include "starter.h"

/* Has the starter serve a model with these settings to the slot, and makes *s those of the kind
   vfio-user that lends it; `socket` holds its path.  0, or -1 after a message. */
int isolate(int starter, unsigned slot, const device_kind *kind, unsigned disk_threads,
            device_settings *s, char socket[STARTER_PATH_BYTES]);

#endif /* ISOLATE_H_INCLUDED */
