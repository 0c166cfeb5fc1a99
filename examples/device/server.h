/* server.h - a device model as a vfio-user server: one PCI function for one client
   SPDX-License-Identifier: MIT

   The model behind it knows nothing of vfio-user: accesses become TLPs to it, its TLPs become
   accesses to the client's memory and interrupts, in the order in which it sends them.  What a
   client does not do (BAR addresses, messages of MSI and MSI-X, payload sizes) is set here, after
   each reset; its own bits of Command and its enabling of interrupts reach the model. */
#ifndef SERVER_H_INCLUDED
#define SERVER_H_INCLUDED

#include "device.h"

typedef struct server_settings {
    const device_kind *kind;
    device_settings device;
    const char *socket;
    unsigned mode;         /* of the socket file */
    unsigned disk_threads; /* 0: the loop waits for disks */
} server_settings;

typedef struct server server;

/* NULL after a message.  *s is copied, and what it points to outlives the server. */
server *server_open(const server_settings *s);
void server_close(server *v); /* NULL is allowed */
/* Readable when server_work() has something to do; besides it is to be called every 10 ms. */
int server_descriptor(const server *v);
/* 0, or -1 after a message: it cannot go on. */
int server_work(server *v);
void server_report(server *v, report *r);

#endif /* SERVER_H_INCLUDED */
