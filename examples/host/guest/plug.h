/* plug.h - functions of direct attach are plugged into a virtual machine, and unplugged, by QMP
   SPDX-License-Identifier: MIT

   One object for one virtual machine: from what its keeper says of each slot, and what QEMU answers
   and reports, it decides which commands QEMU gets (V-47).  A device that is set up is added to the
   slot's root port; one that is to be detached is removed first, by asking the guest; one that is
   lost is removed afterwards.  What QEMU would not survive is not sent.
   Pure: lines of JSON go in and out, time is a parameter. */
#ifndef PLUG_H_INCLUDED
#define PLUG_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PLUG_SLOTS = 28,
    PLUG_PATH_BYTES = 108,
    PLUG_NAME_BYTES = 48,
    PLUG_WAIT_MS = 20000 /* that a guest has to let go of a device: pciehp takes 6 s */
};

/* ==== Settings ================================================================================ */

typedef struct plug_settings {
    char socket[PLUG_PATH_BYTES]; /* of QMP */
    char bus[PLUG_NAME_BYTES];    /* root port of a slot: "rp%u" */
    bool unplugs_msix;            /* this QEMU survives that, whatever its version */
} plug_settings;

/* "SOCKET[,bus=NAME%u][,unplug-msix]": NULL, or what is wrong with it. */
const char *plug_parse(const char *text, plug_settings *out);

/* ==== One virtual machine ===================================================================== */

/* What a keeper says of a slot. */
enum {
    PLUG_NONE,    /* no device is there, or what it is is not known yet */
    PLUG_SETUP,   /* it is known, and can be shown again when it has been reset */
    PLUG_OFFERED, /* one can be, and none is connected */
    PLUG_USED,    /* a virtual machine is connected, and has it */
    PLUG_LOST     /* ... and what it had is lost */
};

typedef struct plug_view {
    uint8_t state; /* PLUG_NONE.. */
    bool msix;     /* the function that is shown has MSI-X */
    bool leaving;  /* it is to be removed, by asking the guest */
} plug_view;

/* What QEMU has of a slot. */
enum { PLUG_VM_ABSENT, PLUG_VM_ADDING, PLUG_VM_PRESENT, PLUG_VM_DELETING };

typedef struct plug_slot {
    plug_view view;
    uint8_t vm;        /* what QEMU has of it: PLUG_VM_ABSENT.. */
    bool msix;         /* the function that QEMU has has MSI-X, or had */
    bool marked;       /* ... and its id says so */
    bool ejected;      /* removed by others: not added again until another device is there */
    bool answered;     /* `leaving` was */
    bool said;         /* why it stays plugged in */
    uint64_t since_ns; /* of view.state */
    uint64_t until_ns; /* when a guest that was asked is not waited for any longer; 0: not asked */
    uint64_t again_ns; /* no command before */
} plug_slot;

typedef struct plug {
    const plug_settings *set;
    unsigned slots;
    const char *path; /* absolute: sockets of functions are PATH.1, ... */
    void *user;
    void (*send)(void *user, const char *text); /* to QEMU; may be lost with the connection */
    void (*removed)(void *user, unsigned slot); /* of one that leaves: go on */
    bool ready;                                 /* QEMU takes commands, what it has is known */
    unsigned version;                           /* of QEMU: 11.1.3 is 110103 */
    plug_slot slot[PLUG_SLOTS];
} plug;

void plug_init(plug *p, const plug_settings *set, unsigned slots, const char *path);
/* QMP is connected; it is over. */
void plug_open(plug *p);
void plug_lost(plug *p, uint64_t now_ns);
/* A message of QEMU: text of `bytes`.  False: it is no QMP. */
bool plug_hear(plug *p, const char *text, size_t bytes, uint64_t now_ns);
/* A keeper says this of slot 1... */
void plug_look(plug *p, unsigned slot, plug_view view, uint64_t now_ns);
void plug_tick(plug *p, uint64_t now_ns);
uint64_t plug_next_ns(const plug *p);

#endif /* PLUG_H_INCLUDED */
