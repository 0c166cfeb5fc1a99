/* functions.h - a device of several functions, lent as a whole
   SPDX-License-Identifier: MIT

   Each function is an object of a model, with registers, BARs, interrupts and resets of its own
   (Base Spec 7.5.1.1.9: a multi-function device).  This gives each TLP to the function that it is
   for, and link events, resets and wipes to all of them. */
#ifndef FUNCTIONS_H_INCLUDED
#define FUNCTIONS_H_INCLUDED

#include "device.h"

/* The kind of a device whose functions are each an NVMe controller (device_settings.functions),
   with namespaces of its own: device_settings.function_count of them, or one and behind it
   device_settings.virtuals virtual ones.  Each has its share of device_settings.file, in that
   order. */
extern const device_kind nvme_functions_kind;

#endif /* FUNCTIONS_H_INCLUDED */
