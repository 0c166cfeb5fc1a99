/* isolate.h - a slot's model in a process of its own
   SPDX-License-Identifier: MIT */
#ifndef ISOLATE_H_INCLUDED
#define ISOLATE_H_INCLUDED

#include "device.h"
#include "starter.h"

/* What the settings point to, and what the box has seen of the disk before its model has it. */
typedef struct isolated {
    char socket[STARTER_PATH_BYTES], layout[STARTER_PATH_BYTES];
    device_medium medium;
    bool fits; /* as device_kind.fits */
} isolated;

/* Has the starter serve a model with these settings to the slot, and makes *s those of the kind
   vfio-user that lends it, for as long as *out is there.  0, or -1 after a message. */
int isolate(int starter, unsigned slot, const device_kind *kind, unsigned disk_threads,
            device_settings *s, isolated *out);

#endif /* ISOLATE_H_INCLUDED */
