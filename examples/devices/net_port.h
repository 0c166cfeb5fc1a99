/* net_port.h - where the frames of a network device go: a tap interface, or a descriptor
   SPDX-License-Identifier: MIT

   Each frame is preceded by a header of 12 bytes, as virtio 1.2 (5.1.6) and Linux's tap have it: it
   says what of the checksum and of the segmentation is left to do.  A descriptor is that of a tap,
   or of a datagram socket whose peer reads and writes this header. */
#ifndef NET_PORT_H_INCLUDED
#define NET_PORT_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NET_PORT_QUEUES = 2,
    NET_PORT_HEADER = 12,
    NET_PORT_FRAME = NET_PORT_HEADER + 18 + 65535 /* the longest, with a VLAN tag */
};

enum { /* what whoever gets the frames does himself */
       NET_PORT_CSUM = 1,
       NET_PORT_TSO4 = 2,
       NET_PORT_TSO6 = 4,
       NET_PORT_ECN = 8,
       NET_PORT_UNKNOWN = 16 /* as another program left them */
};

typedef struct net_port {
    unsigned queues;
    bool tap;
    bool datagrams;    /* of 0 bytes as well: that is not the end */
    unsigned offloads; /* that net_port_offload() set last */
    int fd[NET_PORT_QUEUES];
    bool ready[NET_PORT_QUEUES]; /* there may be frames */
    int lock;                    /* of the interface; -1: none */
    int watch;                   /* readable when there are frames of a queue that is not ready */
} net_port;

/* tap: name of an interface that exists; NULL: descriptor.  0, or -1 after a message, then
   closed. */
int net_port_open(net_port *p, const char *tap, uint64_t descriptor);
void net_port_close(net_port *p);
/* Notes which queues have become ready. */
void net_port_poll(net_port *p);
/* The queue is not ready until it has frames: `watch` says so. */
void net_port_arm(net_port *p, unsigned queue);
/* A frame with its header, of any length; false: none, and the queue is not ready. */
bool net_port_read(net_port *p, unsigned queue, uint8_t *to, size_t room, size_t *bytes);
/* False: not now.  What cannot be sent at all is dropped: *dropped. */
bool net_port_write(net_port *p, unsigned queue, const uint8_t *from, size_t bytes, bool *dropped);
/* NET_PORT_..., of frames that are read.  What is set already costs no system call. */
void net_port_offload(net_port *p, unsigned what);

#endif /* NET_PORT_H_INCLUDED */
