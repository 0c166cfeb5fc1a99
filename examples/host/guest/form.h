/* form.h - the two forms in which a virtual machine sees devices: a VMD-like function, or one each
   SPDX-License-Identifier: MIT

   guest.c has what both do with their slots; a form has what the virtual machine monitor connects
   to.  The functions of a form are called by guest.c alone. */
#ifndef FORM_H_INCLUDED
#define FORM_H_INCLUDED

#include "dxpu_vfio_user.h"
#include "guest.h"

struct guest {
    const guest_settings *set;
    uint64_t hold_ns;
    guest_slot *slots; /* [set->slots] */
};

struct guest_form {
    bool numbered; /* a socket for each slot */
    /* An object that begins with a guest, whose members the form sets and whose slots it
       initializes; NULL after a message. */
    guest *(*open)(const guest_settings *set, const slot_line *const *lines, uint64_t hold_ns);
    void (*close)(guest *g); /* all but the slots */
    int (*fd)(const guest *g);
    int (*process)(guest *g);
    const dxpu_vfu *(*server)(const guest *g, unsigned n); /* of the nth socket */
    /* A slot has worked, or is over: read its client from now on, or do not. */
    void (*settle)(guest *g, unsigned slot);
    void (*tick)(guest *g, uint64_t now_ns);
    uint64_t (*next_ns)(const guest *g);
    /* Is a device that is up not yet shown?  May be NULL: none. */
    bool (*looks)(const guest *g, unsigned slot);
    /* May be NULL: its functions are not plugged. */
    plug_view (*plug)(const guest *g, unsigned slot);
    void (*report)(const guest *g, report *r);
};

#endif /* FORM_H_INCLUDED */
