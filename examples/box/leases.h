/* leases.h - a manager's leases of a box's slots: bind, unbind, drain, reset, and the wipe between
   two of them
   SPDX-License-Identifier: MIT

   What a lease changes is in the state file before it is answered.  A slot is admitted to the host
   of its lease alone, by the epoch (M-55). */
#ifndef LEASES_H_INCLUDED
#define LEASES_H_INCLUDED

#include "slots.h"

/* What requests.h asks for, of one slot, in its loop.  REQUESTS_LATER: shards_answer() follows. */
unsigned leases_bind(box *b, const dxpu_control_bind *m);
unsigned leases_unbind(box *b, const dxpu_control_unbind *m);
unsigned leases_reset(box *b, const dxpu_control_reset *m);
/* The slot's requests may pass by its host, or not (M-181). */
void leases_direct(box *b, unsigned number, bool on);
void leases_drain(box *b, unsigned number, bool on);

/* state_result, with a manager: what was under way for a slot is on disk, or could not be
   written. */
void leases_written(box *b, unsigned number, bool kept);

/* After the state file was read: leases hold again, wipes wait for the manager (M-105). */
void leases_begin(box *b);
/* Before, of what was read: does it speak of what is in the slots now (M-67)?  The file is to say
   what is found, and medium[] does. */
void leases_look(box *b);
/* A device comes or leaves while the box runs.
   forget      before it leaves: what it keeps its data on counts as wiped no longer
   promised    another slot has the data of a tenant there, or of one that could not be wiped
   unplugged   it leaves, and takes its lease's medium with it
   plugged     it is there, and looked at as by leases_look()
   forget, plugged: true: that is written, and plug_written() follows. */
bool leases_forget(box *b, unsigned number);
bool leases_promised(const box *b, unsigned number, const device_kind *kind, void *device);
void leases_unplugged(box *b, unsigned number);
bool leases_plugged(box *b, unsigned number);
/* Report to the manager what leases_look() found, once there is one. */
void leases_tell(const box *b);
/* DXPU_REASON_NONE: the slot is lent to this node under this epoch. */
uint8_t leases_admit(box *b, unsigned number, uint32_t node, uint64_t epoch);
/* A step of each wipe there is. */
void leases_work(shard *sh);
/* leases_work() is to be called again at once; else when jobs are over. */
bool leases_wiping(const shard *sh);

/* What its answers, its statuses and its reports call the slot: not *wiped* while it may hold data
   (S-249). */
uint8_t leases_state(const box *b, unsigned number);
/* The report of a slot to the manager. */
void leases_device(const box *b, unsigned number, dxpu_control_device *out);
/* device_port.fault */
void leases_fault(void *user, const char *what);

#endif /* LEASES_H_INCLUDED */
