/* direct_internal.h - the functions of a virtual machine's devices: of direct.c and its test
   SPDX-License-Identifier: MIT */
#ifndef DIRECT_INTERNAL_H_INCLUDED
#define DIRECT_INTERNAL_H_INCLUDED

#include "access.h"
#include "direct.h"
#include "shadow.h"

#include "dxpu_vswitch.h"

enum { DIRECT_DEVICE = DXPU_BDF(1, 0, 0) }; /* the device, behind a root port of its own */

typedef struct direct_function {
    guest_slot *slot;
    dxpu_vfu *vfu;
    const guest_settings *set;
    slot_host host;
    windows memory; /* of the guest, as the client gave it last */
    uint32_t memory_changes;
    access_table accesses;
    shadow shadow;
    uint8_t image[SHADOW_BYTES];
    uint8_t setup;            /* SETUP_* */
    uint16_t setups;          /* an answer to an earlier one is dropped */
    unsigned next, asked;     /* of a step: the next request; those not answered */
    bool there;               /* a device is in the slot */
    bool known;               /* and `shadow` is of it */
    bool live;                /* the client that is connected was shown this device */
    bool offered;             /* a client that connects is shown the device */
    bool msix;                /* the function that it is shown, or was, has MSI-X */
    dxpu_vswitch_values lost; /* what registers of the device that it lost read (V-51) */
    bool unready;             /* ... which was reset, and is not set up: it reads as ones */
    uint64_t retry_ns;        /* when it is set up again; 0: it is not to be */
    uint64_t reset_token;     /* 0: no reset is to be answered */
    uint64_t config_reads, config_writes, memory_reads, memory_writes, dropped, resets,
        setups_failed;
} direct_function;

typedef struct direct {
    guest guest;
    int epoll; /* of all sockets */
    direct_function *functions;
} direct;

#endif /* DIRECT_INTERNAL_H_INCLUDED */
