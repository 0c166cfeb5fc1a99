/* shadow.h - the configuration space of a remote device as a virtual machine sees it
   SPDX-License-Identifier: MIT

   Most registers are the device's.  Some are kept here, since their owner is the host: BARs (the
   virtual machine monitor places them, the device has addresses of the host's), memory decoding
   (always on in the device), power states (the device stays in D0), Max_Payload_Size (the virtual
   machine's root port is not on the device's way to memory), MSI (its messages are the host's,
   which makes eventfds of them).  Capabilities that such a function cannot have are hidden:
   SR-IOV and ARI, address translation; and those by which BARs move or a reset passes unseen.  Only
   function 0 of a device is shown.

   The device is not trusted (V-46): what a virtual machine monitor relies on, the lists of
   capabilities, sizes, the interrupt pin and where interrupts are, is looked at once, written again
   and kept here, so that a device that answers otherwise later changes nothing.
   Pure: the owner sends what is to be written. */
#ifndef SHADOW_H_INCLUDED
#define SHADOW_H_INCLUDED

#include <stdbool.h>
#include <stdint.h>

enum { SHADOW_BYTES = 4096, SHADOW_BARS = 6, SHADOW_WRITES_MAX = 16, SHADOW_MESSAGES_MAX = 32 };

/* The messages that are programmed into the device: a page of the interrupts' addresses for each
   kind.  The data is the vector. */
#define SHADOW_MSIX_ADDRESS 0xfee00000u
#define SHADOW_MSI_ADDRESS  0xfee01000u

/* Which interrupts the virtual machine sees. */
enum {
    SHADOW_AUTO, /* as MSI, but MSI-X where drivers use no MSI: virtio */
    SHADOW_MSI,  /* MSI, also in the place of MSI-X */
    SHADOW_MSIX  /* what the device has */
};

typedef struct shadow_bar {
    uint64_t bytes;   /* 0: none */
    uint64_t address; /* in the device */
    bool prefetchable;
} shadow_bar;

typedef struct shadow {
    uint8_t shown[SHADOW_BYTES];    /* what was read once, and what is kept here */
    uint8_t own[SHADOW_BYTES];      /* bits that are kept here */
    uint8_t writable[SHADOW_BYTES]; /* ... and that the virtual machine changes */
    shadow_bar bar[SHADOW_BARS];
    unsigned power, msi, msix, express; /* where these capabilities of the device are; 0: none */
    bool replaced;                      /* MSI is shown where MSI-X is */
    uint32_t vectors;                   /* of MSI-X */
    unsigned table_bar;
    uint32_t table_at; /* in that BAR */
    uint32_t messages; /* of the MSI that is shown; 0: none */
    bool msix_shown;
    bool pin;     /* it has INTx */
    unsigned mps; /* Max_Payload_Size of the device, the largest that it can have: 128 << mps */
} shadow;

/* A write to the device's configuration space, within a dword. */
typedef struct shadow_write {
    uint32_t at, bytes;
    uint32_t value;
} shadow_write;

/* What the configuration space of a device holds, and what its BARs read after ones were written:
   NULL, or why it cannot be shown.  interrupts: SHADOW_AUTO.. */
const char *shadow_init(shadow *s, const uint8_t image[SHADOW_BYTES],
                        const uint32_t sized[SHADOW_BARS], unsigned interrupts);
/* The device was reset. */
void shadow_reset(shadow *s);
/* What must be written to the device after a reset, in this order: how many. */
unsigned shadow_setup(const shadow *s, shadow_write out[SHADOW_WRITES_MAX]);
/* ... and after a change of MSI. */
unsigned shadow_interrupts(const shadow *s, shadow_write out[SHADOW_WRITES_MAX]);

/* Are all these bytes kept here? */
bool shadow_is_own(const shadow *s, uint32_t at, uint32_t bytes);
/* Into what the device answered: the bits that are kept here. */
void shadow_answer(const shadow *s, uint32_t at, uint8_t *data, uint32_t bytes);
/* A write of the virtual machine, within a dword; data becomes what the device is to get. */
typedef struct shadow_effect {
    bool forward;    /* the device is to get it */
    bool flr;        /* with which it is reset */
    bool interrupts; /* shadow_interrupts() says what else */
} shadow_effect;
shadow_effect shadow_take(shadow *s, uint32_t at, uint8_t *data, uint32_t bytes);

/* The vector that the virtual machine is interrupted by, of a kind that it sees: false for a
   message that was not programmed. */
bool shadow_vector(const shadow *s, uint64_t address, uint32_t data, bool *msix, uint32_t *vector);
/* Does an access of a BAR touch the MSI-X table? */
bool shadow_is_table(const shadow *s, unsigned bar, uint64_t at, uint64_t bytes);

#endif /* SHADOW_H_INCLUDED */
