/* direct.h - each slot as a vfio-user function of its own, which is the remote device
   SPDX-License-Identifier: MIT

   The virtual machine monitor connects to the socket of a slot and puts the function into a root
   port, or a bus, of its virtual machine.  No driver for VMD is needed.  The host does what a
   platform does: it reads the configuration space (shadow.h), places the BARs in the device,
   programs its interrupts, and makes eventfds of them.

   A function is presented while its device is there and reset.  A virtual machine that was
   connected when the device was lost reads all ones until it disconnects; only then is the next
   device presented. */
#ifndef DIRECT_H_INCLUDED
#define DIRECT_H_INCLUDED

#include "form.h"

extern const guest_form direct_form;

#endif /* DIRECT_H_INCLUDED */
