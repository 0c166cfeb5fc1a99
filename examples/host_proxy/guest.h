/* guest.h - a virtual machine attached to the fabric: vfio-user function, virtual switch, slots
   SPDX-License-Identifier: MIT

   QEMU shows its guest one PCI function (vmd.h).  Accesses to its BARs become TLPs: BAR0 is the
   configuration space of the virtual switch and what stands behind it, BAR2 and BAR4 are memory.
   What devices request of memory is done in the guest's, their interrupts go to the guest. */
#ifndef GUEST_H_INCLUDED
#define GUEST_H_INCLUDED

#include "fabric.h"
#include "manager_link.h"

#define GUEST_BAR4_MAX ((uint64_t)1 << 40)

typedef struct guest_settings {
    const char *socket; /* where QEMU's vfio-user-pci connects */
    const char *attach; /* "1=ADDR:PORT[,ADDR:PORT...]/SLOT[/EPOCH],..." or NULL */
    unsigned topology;  /* DXPU_VSWITCH_* */
    uint64_t slots;
    uint64_t bar2_bytes, bar4_bytes; /* at most GUEST_BAR4_MAX */
    const char *control;             /* where it is told to attach and detach, NULL: nowhere */
    uint64_t node;                   /* of this host in the fabric; 0: its manager will tell */
    const manager_settings *manager; /* NULL: none */
    unsigned number; /* of several in one process, from 0: its control port is so much further */
} guest_settings;

typedef struct guest guest;

/* What is wrong with the list of attachments, given where the fabric's port will listen: a matter
   of usage.  NULL: nothing.  Valid until the next call. */
const char *guest_check(const guest_settings *set, const char *listen);
/* NULL after a message, with the exit status. */
guest *guest_open(const guest_settings *set, const fabric_settings *net, int *status);
/* Serve until stopped: 0, or -1. */
int guest_run(guest *g);
/* The first time: close the channels in order; the second: at once. */
void guest_stop(guest *g);
/* --peers was read again. */
void guest_keys_changed(guest *g);
void guest_report(const guest *g, report *r);
struct event_base *guest_base(guest *g);
fabric *guest_fabric(guest *g);
int guest_close(guest *g);

#endif /* GUEST_H_INCLUDED */
