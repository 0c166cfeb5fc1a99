/* hot_plug.h - the device of a slot comes and goes while the box runs
   SPDX-License-Identifier: MIT

   A slot without a device has one of no_device_kind, which is absent (device_port.present).  A
   device that leaves is destroyed once its jobs are over, and a new one is made by a job, since
   both may have to wait for a disk (S-160); meanwhile the slot is absent. */
#ifndef HOT_PLUG_H_INCLUDED
#define HOT_PLUG_H_INCLUDED

#include "slots.h"

extern const device_kind no_device_kind;

/* In the slot's loop.  plan: of the device that comes, NULL: none; taken over, and all of it
   freed, when it returns REQUESTS_LATER: shards_answer() follows then. */
unsigned plug_begin(box *b, const dxpu_control_plug *m, slot_plan *plan);
/* Go on, in each turn of the loop. */
void plug_work(shard *sh);
/* What leases_plugged() found about a new device is on disk, or could not be written. */
void plug_written(slot *s, bool kept);
/* The box ends: no device comes any more. */
void plug_close(slot *s);

#endif /* HOT_PLUG_H_INCLUDED */
