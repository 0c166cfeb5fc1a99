/* bridge.h - all slots of a virtual machine behind one VMD-like function
   SPDX-License-Identifier: MIT

   QEMU shows its guest one PCI function (vmd.h).  Accesses to its BARs become TLPs: BAR0 is the
   configuration space of the virtual switch and what stands behind it, BAR2 and BAR4 are memory. */
#ifndef BRIDGE_H_INCLUDED
#define BRIDGE_H_INCLUDED

#include "form.h"

extern const guest_form bridge_form;

#endif /* BRIDGE_H_INCLUDED */
