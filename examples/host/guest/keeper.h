/* keeper.h - the process that faces one virtual machine, and outlives the one that faces the fabric
   SPDX-License-Identifier: MIT

   It holds the vfio-user connection, guest memory and the switch; it has no key and no network
   (S-180).  The worker process (host.h) has the channels.  When that ends, whatever the reason, the
   guest sees a containment (D-60): what it asked is answered with all ones, its slots are empty;
   the next worker fills them by hot-add (V-31).  Their parent (parent.h) notifies the keeper. */
#ifndef KEEPER_H_INCLUDED
#define KEEPER_H_INCLUDED

#include "crossing.h"
#include "guest.h"

/* Between keeper and parent, one message each: a byte, some with descriptors. */
enum {
    /* to the keeper */
    KEEPER_LINK = 'L', /* a worker begins: the descriptors of crossing_fds */
    KEEPER_LOST = 'G', /* it is gone */
    KEEPER_PLUG = 'P', /* a socket to the process that speaks QMP, plugger.h */
    KEEPER_STOP = 'S', /* end gracefully */
    /* from it */
    KEEPER_OPEN = 'O', /* its sockets are there: a guest can connect */
    KEEPER_KILL = 'K', /* the worker does not read, or not as agreed */
    /* + n: the connection to the guest's nth socket: hold it, too; without a descriptor: no more */
    KEEPER_CLIENT = 1,
    KEEPER_CLIENT_LAST = KEEPER_CLIENT + DXPU_VSWITCH_SLOTS_MAX - 1
};

enum { KEEPER_MEMORY_BYTES = 512 }; /* of what it remembers of an attachment */

typedef struct keeper_settings {
    const guest_settings *guest;
    uint64_t hold_ms;
    unsigned wait; /* DXPU_UDP_ADAPTIVE.. */
} keeper_settings;

/* A message; fds may be NULL.  0, or -1 with errno. */
int keeper_tell(int socket, char kind, const int *fds, unsigned count);
/* The next one: its kind, 0 for none yet, -1 when the other end is gone.  Of fds[*count] those that
   came, *count of them. */
int keeper_hear(int socket, int *fds, unsigned *count);
/* Serve until ordered to stop, or until the parent is gone: the exit status. */
int keeper_run(const keeper_settings *set, int parent);

#endif /* KEEPER_H_INCLUDED */
