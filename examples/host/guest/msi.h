/* msi.h - the interrupt messages that the guest programmed into the functions behind one slot
   SPDX-License-Identifier: MIT

   What the guest writes into a function's MSI capability and MSI-X table passes here on its way
   down; where these stand is learnt from what the guest reads on the way up, so that proxy and
   guest believe the same.  Only bytes that the guest wrote make a message, whatever a device says
   it holds.  A message that was replaced stays good until the device has answered a request that
   was sent behind the change: until then one may be on its way, and would be lost.
   The table of a virtual function (SR-IOV) lies in its part of a BAR of function 0's capability,
   of which the same holds.
   Pure: the slot shows it what goes down and what is answered. */
#ifndef MSI_H_INCLUDED
#define MSI_H_INCLUDED

#include "windows.h"

enum {
    MSI_FUNCTIONS = 256, /* behind one slot; the oldest is forgotten for one more */
    MSI_TAGS = 256,
    MSI_OLD = 256, /* replaced messages that may still be on their way */
    MSI_CONFIG_BYTES = 256
};

typedef struct msi_message {
    uint16_t requester;
    uint32_t data;
    uint32_t varies; /* bits of data that the function chooses */
    uint32_t mask;   /* bit n: not with n in these */
    uint64_t address;
    uint64_t until; /* of a replaced one: the request whose answer ends it */
} msi_message;

typedef struct msi_function {
    uint16_t bdf;
    uint8_t msi, msix, express;     /* where these capabilities are; 0: not known */
    uint32_t vectors;               /* of the MSI-X table; 0: not known */
    uint32_t *table;                /* [4 * vectors], as the guest wrote it */
    uint64_t until;                 /* MSI-X was disabled, as in msi_message */
    uint64_t master_until;          /* Bus Master Enable was cleared, as in msi_message */
    uint8_t told[MSI_CONFIG_BYTES]; /* by the device: the first answer counts */
    uint8_t known[MSI_CONFIG_BYTES / 8];
    uint8_t written[MSI_CONFIG_BYTES]; /* by the guest since the last reset */
} msi_function;

/* SR-IOV of a function 0, as the guest has found and programmed it. */
typedef struct msi_virtual {
    uint16_t physical;    /* that function */
    uint16_t next;        /* the extended capability that is looked at next; 0: none */
    uint16_t at;          /* where SR-IOV is; 0: not known */
    uint16_t first, step; /* First VF Offset, VF Stride */
    bool enabled;
    uint32_t written[6], sized[6]; /* VF BARs; what they read after ones were written */
} msi_virtual;

typedef struct msi_request {
    uint64_t number;
    uint16_t target, register_bytes;
    uint8_t be; /* of a configuration read; 0: something else */
} msi_request;

typedef struct msi_filter {
    msi_function *functions;
    unsigned count, next; /* next: the one to forget when all are used */
    msi_virtual virtuals;
    uint64_t sent, seen; /* number of the youngest request sent; of the youngest answered */
    msi_request requests[MSI_TAGS]; /* by tag */
    msi_message old[MSI_OLD];
    unsigned next_old;
    bool moved; /* addresses may have been programmed or replaced; for the user to clear */
} msi_filter;

/* Nothing is known: another device.  Of a zeroed object, or one that was used. */
void msi_clear(msi_filter *m);
/* The device was reset: nothing is programmed, its capabilities are where they were. */
void msi_reset(msi_filter *m);
/* A TLP of the guest goes to the device; a non-posted one has its tag. */
void msi_sent(msi_filter *m, const dxpu_tlp *t);
/* A completion of such a request. */
void msi_answered(msi_filter *m, const dxpu_tlp *cpl);

/* What the guest lets a function do that it has configured behind this slot.  Bus Master Enable
   counts until the device has answered a request that was sent behind its end. */
enum { MSI_STRANGER, MSI_NO_MASTER, MSI_MASTER };
int msi_master(const msi_filter *m, uint16_t requester);
/* Grant the addresses of all messages, those included that may still be on their way. */
void msi_windows(const msi_filter *m, windows *out);
/* A message that was replaced may still be on its way. */
bool msi_leaving(const msi_filter *m);

/* A write that touches the addresses of interrupts, 0xfee00000 to 0xfeefffff. */
bool msi_is(const dxpu_tlp *t);
/* ... and is a message that its function was set to send: one aligned dword, all bytes enabled. */
bool msi_allowed(const msi_filter *m, const dxpu_tlp *t);

#endif /* MSI_H_INCLUDED */
