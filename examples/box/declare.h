/* declare.h - the message by which a box declares what a device's registers read once it is lost
   SPDX-License-Identifier: MIT */
#ifndef DECLARE_H_INCLUDED
#define DECLARE_H_INCLUDED

#include "device.h"

enum {
    DECLARE_HEAD_BYTES = 4,
    DECLARE_VALUE_BYTES = 16,
    DECLARE_BYTES = 16 + DECLARE_HEAD_BYTES + DEVICE_VALUES_MAX * DECLARE_VALUE_BYTES
};

/* A vendor-defined message (V-49), which a host that does not know it drops.  count: at most
   DEVICE_VALUES_MAX. */
dxpu_bytes declare_encode(const device_value *values, unsigned count, uint8_t out[DECLARE_BYTES]);

#endif /* DECLARE_H_INCLUDED */
