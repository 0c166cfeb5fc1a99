/* remote.h - device kind vfio-user: the function that another process serves, in a slot
   SPDX-License-Identifier: MIT

   The process listens on a UNIX socket (device_settings.socket) and is one PCI function; see
   bindings/vfio_user.  Its registers are reached by messages, and it reaches the host's memory by
   messages: each becomes TLPs of this function, so that what holds for a model holds for it, too
   (slots.h): it reaches no more than its lease grants.

   What the box owns: configuration space with PCI Express, power management, MSI and MSI-X, BARs,
   resets, tags.  What is the server's: identity, sizes of BARs, numbers of vectors, vendor-specific
   capabilities (virtio's), and what is behind the BARs.

   A server that ends, does not answer, or describes no device that can be lent is absent
   (device_port.present); one that is there again is reset before it is present.  Its data are its
   own: unless device_settings.stateless says that none outlive a lease, or .medium which they are,
   a manager lends it to none. */
#ifndef REMOTE_H_INCLUDED
#define REMOTE_H_INCLUDED

#include "device.h"

extern const device_kind vfio_user_kind;

/* What a device that is not the box's own keeps its data on, by where it is found. */
device_medium remote_medium_of(const char *name, bool stateless);

#endif /* REMOTE_H_INCLUDED */
