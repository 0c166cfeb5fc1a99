/* plugger.h - the process that speaks QMP with a virtual machine monitor
   SPDX-License-Identifier: MIT

   Whoever speaks QMP can do with the virtual machine, and as its user, what it likes.  So that
   process reads nothing that comes from a guest or the network, and has neither keys nor files: its
   keeper says a slot's number and state, and it answers with a slot's number (V-48). */
#ifndef PLUGGER_H_INCLUDED
#define PLUGGER_H_INCLUDED

#include "guest.h"
#include "plug.h"

/* Its sockets' path as QEMU is to see it, which may have another working directory.  False: with a
   slot's number it is too long. */
bool plugger_path(const guest_settings *set, char out[PLUG_PATH_BYTES]);

/* Serve until the parent is gone.  keeper: its end of a pair of SOCK_SEQPACKET; parent: readable
   when that process has ended.  The exit status. */
int plugger_run(const guest_settings *set, int keeper, int parent);

/* The keeper's part: of a slot say what is to be known.  False: not now. */
bool plugger_tell(int plugger, unsigned slot, plug_view view);
/* The next slot whose device may be taken; 0: none yet, -1: the process is gone. */
int plugger_hear(int plugger);

#endif /* PLUGGER_H_INCLUDED */
