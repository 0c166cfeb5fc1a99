/* host.h - a virtual machine attached to the fabric: its slots' boxes, control port and manager
   SPDX-License-Identifier: MIT

   The worker's part (parent.h): it has keys and network, and none of the guest's memory.  What the
   guest does comes from its keeper (keeper.h), over memory that they share (crossing.h). */
#ifndef HOST_H_INCLUDED
#define HOST_H_INCLUDED

#include "crossing.h"
#include "fabric.h"
#include "guest.h"
#include "manager_link.h"

typedef struct host_settings {
    guest_settings guest;
    const char *attach;              /* "1=ADDR:PORT[,ADDR:PORT...]/SLOT[/EPOCH],..." or NULL */
    const char *control;             /* where it accepts attach and detach, NULL: nowhere */
    uint64_t node;                   /* of this host in the fabric; 0: its manager sets it */
    const manager_settings *manager; /* NULL: none */
    unsigned number; /* of several in one process, from 0: its control port is so much further */
} host_settings;

typedef struct host host;

/* What is wrong with the list of attachments, given where the fabric's port will listen: a matter
   of usage.  NULL: nothing.  Valid until the next call. */
const char *host_check(const host_settings *set, const char *listen);
/* link: to the keeper, taken over.  again: there was a worker before this one, and the keeper
   remembers what was attached.  key: of all workers and no keeper.  NULL after a message, with the
   exit status. */
host *host_open(const host_settings *set, const fabric_settings *net, const crossing_fds *link,
                bool again, const uint8_t key[CROSSING_KEY_BYTES], int *status);
/* Serve until stopped: 0, or -1. */
int host_run(host *h);
/* The first time: close the channels gracefully; the second: at once. */
void host_stop(host *h);
/* --peers was read again. */
void host_keys_changed(host *h);
void host_report(host *h, report *r);
struct event_base *host_base(host *h);
fabric *host_fabric(host *h);
/* Its guest is gone for good: detach all. */
void host_abandon(host *h);
int host_close(host *h);

#endif /* HOST_H_INCLUDED */
