/* edid.h - what the monitor of a display says of itself: 128 bytes, VESA E-EDID 1.4
   SPDX-License-Identifier: MIT */
#ifndef EDID_H_INCLUDED
#define EDID_H_INCLUDED

#include <stdint.h>

enum { EDID_BYTES = 128, EDID_WIDTH = 1024, EDID_HEIGHT = 768 /* of the preferred mode */ };

/* identity: its serial number. */
void edid_make(uint8_t edid[EDID_BYTES], uint64_t identity);

#endif /* EDID_H_INCLUDED */
