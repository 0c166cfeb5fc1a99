/* device.h - what stands in a slot: takes TLPs, emits TLPs, hears link events, can be reset
   SPDX-License-Identifier: MIT

   A model is a `device_kind` and an object that its create() makes.  The box calls it from one
   thread and never from inside emit(). */
#ifndef DEVICE_H_INCLUDED
#define DEVICE_H_INCLUDED

#include "dxpu.h"
#include "stats.h"

/* How a device speaks to its host.  emit() copies the TLP and never fails: what cannot leave at
   once is queued, and no further non-posted request is given to the device meanwhile. */
typedef struct device_port {
    void *user;
    void (*emit)(void *user, dxpu_bytes tlp);
} device_port;

typedef struct device_settings {
    uint64_t memory_bytes; /* size of the model's memory, a power of two */
    uint64_t mps_bytes;    /* largest Max_Payload_Size it supports */
} device_settings;

typedef struct device_kind {
    const char *name;
    /* NULL: out of memory.  port outlives the object. */
    void *(*create)(const device_settings *s, const device_port *port);
    void (*destroy)(void *device);
    /* One TLP for the device: decoded strictly, and its bytes; both valid until it returns. */
    void (*tlp)(void *device, const dxpu_tlp *t, dxpu_bytes bytes);
    /* A link event of the slot. */
    void (*event)(void *device, const dxpu_event *e);
    /* Fundamental reset: as after power-up, and nothing of the last user's data is left. */
    void (*reset)(void *device);
    void (*report)(void *device, report *r);
} device_kind;

#endif /* DEVICE_H_INCLUDED */
