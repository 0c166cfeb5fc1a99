/* guest.h - what a virtual machine sees: its vfio-user functions and their slots
   SPDX-License-Identifier: MIT

   What devices request of memory is done in the guest's, their interrupts go to the guest.  The
   form (form.h) is that in which it sees them: behind one VMD-like function, or each as a function
   of its own.  Here is no network: each slot has a line (slot.h), which the owner brings. */
#ifndef GUEST_H_INCLUDED
#define GUEST_H_INCLUDED

#include "plug.h"
#include "slot.h"

#define GUEST_BAR4_MAX ((uint64_t)1 << 40)

/* The words of --socket-mode. */
enum { GUEST_SOCKET_OWNER, GUEST_SOCKET_GROUP };

typedef struct guest_form guest_form;

typedef struct guest_settings {
    const char *socket; /* where QEMU's vfio-user-pci connects */
    unsigned topology;  /* DXPU_VSWITCH_* */
    uint64_t slots;
    uint64_t bar2_bytes, bar4_bytes; /* at most GUEST_BAR4_MAX */
    unsigned socket_mode;            /* GUEST_SOCKET_*: clients */
    unsigned interrupts;             /* SHADOW_AUTO..: with --direct, which ones it sees */
    const guest_form *form;          /* bridge_form, direct_form */
    const char *qmp; /* plug_parse(): with --direct, how it is plugged in; or NULL */
    bool push;       /* boxes may ask to have data pushed (U-2) */
    bool p2p;        /* boxes may let devices reach each other (B-1) */
} guest_settings;

/* How the guest takes the device of a slot that is up. */
enum { GUEST_LOOKS, GUEST_SHOWN, GUEST_UNREADABLE, GUEST_NO_ROOM };

typedef struct guest_view {
    uint8_t state; /* GUEST_* */
    char note[64]; /* GUEST_NO_ROOM: what would give it room */
    uint64_t to_device, from_device, dropped, msis_refused;
} guest_view;

typedef struct guest guest;

/* lines[slots]: of each slot; hold_ns: how long an access or a TLP may wait.  NULL after a
   message. */
guest *guest_open(const guest_settings *set, const slot_line *const *lines, uint64_t hold_ns);
void guest_close(guest *g);
/* Readable when guest_process() has something to do: the messages taken, or -1 after a message. */
int guest_fd(const guest *g);
int guest_process(guest *g);
/* How many sockets there are, and the path of the nth (0..): `out`, or what is in the settings. */
enum { GUEST_SOCKET_BYTES = 112 };
unsigned guest_sockets(const guest_settings *set);
const char *guest_socket(const guest_settings *set, unsigned n, char out[GUEST_SOCKET_BYTES]);
/* The connection of the virtual machine to the nth socket, -1: none; and how many there have
   been. */
int guest_client(const guest *g, unsigned n, uint64_t *number);
void guest_tick(guest *g, uint64_t now_ns);
uint64_t guest_next_ns(const guest *g);

/* As slot_begin(), _up(), _work(), _close(), _down(), with what they mean to the other slots. */
void guest_begin(guest *g, unsigned slot);
/* Where the device is, for boxes (B-10); slot 0: not known. */
void guest_place(guest *g, unsigned slot, const dxpu_p2p_place *place);
void guest_up(guest *g, unsigned slot, const char *whose, uint64_t now_ns);
bool guest_work(guest *g, unsigned slot, uint64_t now_ns);
void guest_detach(guest *g, unsigned slot, uint8_t reason);
void guest_down(guest *g, unsigned slot);
/* The tags of a slot's requests. */
dxpu_tags *guest_tags(guest *g, unsigned slot);
guest_view guest_look(const guest *g, unsigned slot);
/* What is to be plugged into the virtual machine, or out of it; PLUG_NONE where nothing is. */
plug_view guest_plug(const guest *g, unsigned slot);

void guest_report(const guest *g, report *r);
void guest_report_slot(const guest *g, unsigned slot, report *r);
void guest_report_server(const guest *g, report *r);

#endif /* GUEST_H_INCLUDED */
