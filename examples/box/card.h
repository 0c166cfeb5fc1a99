/* card.h - device kinds nettlp and rawtlp: a device that takes and sends TLPs over UDP, in a slot
   SPDX-License-Identifier: MIT

   nettlp: the box behaves as NetTLP's adapter, and the device is software on libtlp, or hardware
   that speaks as that does.  rawtlp: the device is a card that is reached by PCILeech's RawUDP.
   See spec/foreign.md, N-10 ff.

   The wire has neither configuration requests nor resets, so the box owns configuration space, BAR
   addresses, MSI-X and resets, and answers in place of a device that loses a request.  What is the
   device's: what is behind BAR 0.  It requests memory of the host by TLPs, and each becomes one of
   this function, so that what holds for a model holds for it, too (slots.h): it reaches no more
   than its lease grants.

   A device that answers nothing is absent (device_port.present).  Its data are its own: unless
   device_settings.stateless says that none outlive a lease, a manager lends it to none. */
#ifndef CARD_H_INCLUDED
#define CARD_H_INCLUDED

#include "device.h"

enum { CARD_VECTORS_MAX = 16 };

extern const device_kind nettlp_kind, rawtlp_kind;

#endif /* CARD_H_INCLUDED */
