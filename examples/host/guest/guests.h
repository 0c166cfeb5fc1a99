/* guests.h - the virtual machines of a dxpu-host: one, or several, each with a loop of its own
   SPDX-License-Identifier: MIT

   What faces the fabric: the guests share nothing while they run, each has a thread, ports, a
   control port, a connection to the manager and an identity.  One alone runs in the first thread.
   What faces a guest is a process of its own (parent.h). */
#ifndef GUESTS_H_INCLUDED
#define GUESTS_H_INCLUDED

#include "host.h"

enum { GUESTS_MAX = 64 };

typedef struct guests guests;

/* How many sockets are in a list with commas. */
unsigned guests_count(const char *sockets);
/* What is wrong with the settings of all of them: of `socket` and `attach` the nth part, the first
   list's behind commas and the second one's behind semicolons, is the nth guest's; it has the nth
   port from each one given on, the nth node number, and ".n" behind its identity file's name.
   A matter of usage.  NULL: nothing.  Valid until the next call. */
const char *guests_check(const host_settings *set, const fabric_settings *net);
/* What the nth one sees: with its own part of `socket` and `qmp`.  0, or -1 out of memory. */
int guests_part(const host_settings *all, unsigned n, guest_settings *out);
void guests_part_free(guest_settings *g);

typedef struct guests_links {
    const crossing_fds *fds; /* to each one's keeper; these are taken over */
    bool again;              /* there was a worker before this one */
    const uint8_t *key;      /* CROSSING_KEY_BYTES */
} guests_links;

/* NULL after a message, with the exit status. */
guests *guests_open(const host_settings *set, const fabric_settings *net, const guests_links *links,
                    int *status);
/* Serve until stopped: 0, or -1. */
int guests_run(guests *g);
/* The first time: close all channels gracefully; the second: at once. */
void guests_stop(guests *g);
/* The nth guest is gone for good. */
void guests_abandon(guests *g, unsigned n);
/* --peers was read again: channels end whose keys may not have them any more. */
void guests_keys_changed(guests *g);
void guests_report(guests *g, report *r);
struct event_base *guests_base(guests *g); /* for signals */
int guests_close(guests *g);

#endif /* GUESTS_H_INCLUDED */
