/* leases.h - a manager's leases of a box's slots: bind, unbind, drain, reset, and the wipe between
   two of them
   SPDX-License-Identifier: MIT

   What a lease changes is in the state file before it is answered.  A slot is admitted to the host
   of its lease alone, by the epoch (M-55). */
#ifndef LEASES_H_INCLUDED
#define LEASES_H_INCLUDED

#include "slots.h"

/* What requests.h asks for; user is the box. */
unsigned leases_bind(void *user, const dxpu_control_bind *m);
unsigned leases_unbind(void *user, const dxpu_control_unbind *m);
unsigned leases_reset(void *user, const dxpu_control_reset *m);
unsigned leases_drain(void *user, const dxpu_control_drain *m);

/* After the state file was read: leases hold again, wipes go on. */
void leases_begin(box *b);
/* DXPU_REASON_NONE: the slot is lent to this node under this epoch. */
uint8_t leases_admit(box *b, unsigned number, uint32_t node, uint64_t epoch);
/* A step of a wipe, if there is one; true: call again soon. */
bool leases_work(box *b);
bool leases_wiping(const box *b);

/* What the manager is told of a slot; user is the box. */
void leases_device(void *user, unsigned number, dxpu_control_device *out);
/* device_port.fault */
void leases_fault(void *user, const char *what);

#endif /* LEASES_H_INCLUDED */
