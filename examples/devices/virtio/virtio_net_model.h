/* virtio_net_model.h - the network adapter's object, and what its parts offer one another
   SPDX-License-Identifier: MIT

   Parts:
     virtio_net.c          frames in both directions, and the device_kind
     virtio_net_control.c  the control queue: filters, address, number of queues */
#ifndef VIRTIO_NET_MODEL_H_INCLUDED
#define VIRTIO_NET_MODEL_H_INCLUDED

#include "net_port.h"
#include "virtio.h"
#include "virtio_net.h"

enum {
    NET_PAIRS = NET_PORT_QUEUES,
    NET_QUEUES = 2 * NET_PAIRS + 1,
    NET_ADDRESS_BYTES = 6,
    NET_ADDRESSES = 64, /* of a filter's table */
    NET_VLANS = 4096,
    NET_SEND_BYTES = 4 << 20, /* of frames that are being read: each pair has its share */
    NET_COMMAND_BYTES = 4096, /* of the control queue */
    NET_TURN = 256,           /* frames received between two ticks */
    NET_WAIT_NS = 1000000000, /* of a frame for more buffers, before it is dropped */
    NET_STALE = 1024          /* more than what a queue of a tap holds (500) */
};

#define NET_F_CSUM       ((uint64_t)1 << 0)
#define NET_F_GUEST_CSUM ((uint64_t)1 << 1)
#define NET_F_MAC        ((uint64_t)1 << 5)
#define NET_F_GUEST_TSO4 ((uint64_t)1 << 7)
#define NET_F_GUEST_TSO6 ((uint64_t)1 << 8)
#define NET_F_GUEST_ECN  ((uint64_t)1 << 9)
#define NET_F_HOST_TSO4  ((uint64_t)1 << 11)
#define NET_F_HOST_TSO6  ((uint64_t)1 << 12)
#define NET_F_HOST_ECN   ((uint64_t)1 << 13)
#define NET_F_MRG_RXBUF  ((uint64_t)1 << 15)
#define NET_F_STATUS     ((uint64_t)1 << 16)
#define NET_F_CTRL_VQ    ((uint64_t)1 << 17)
#define NET_F_CTRL_RX    ((uint64_t)1 << 18)
#define NET_F_CTRL_VLAN  ((uint64_t)1 << 19)
#define NET_F_CTRL_EXTRA ((uint64_t)1 << 20)
#define NET_F_MQ         ((uint64_t)1 << 22)
#define NET_F_CTRL_MAC   ((uint64_t)1 << 23)

typedef struct net_request {
    virtio_request r; /* first */
    bool fetched;
    bool filling;   /* received: a part of the frame is on its way into it */
    uint32_t bytes; /* of `data` */
    uint8_t *data;  /* to be sent; NULL: not read yet */
} net_request;

/* A frame on its way to the driver. */
typedef struct net_receiver {
    uint32_t bytes; /* 0: none */
    uint64_t since_ns;
    unsigned parts, writing;
    net_request *part[VIRTIO_SIZE_MAX];
    uint8_t frame[NET_PORT_FRAME];
} net_receiver;

typedef struct net_filter {
    bool promiscuous, all_multicast, all_unicast, no_multicast, no_unicast, no_broadcast;
    unsigned unicasts, multicasts; /* entries; what is above NET_ADDRESSES is not kept: all pass */
    uint8_t unicast[NET_ADDRESSES][NET_ADDRESS_BYTES], multicast[NET_ADDRESSES][NET_ADDRESS_BYTES];
    uint8_t vlan[NET_VLANS / 8];
} net_filter;

#define NET_COUNTERS(X)                                                                            \
    X(frames_received)                                                                             \
    X(bytes_received)                                                                              \
    X(frames_sent)                                                                                 \
    X(bytes_sent)                                                                                  \
    X(frames_filtered)                                                                             \
    X(receive_dropped)                                                                             \
    X(send_dropped)                                                                                \
    X(control_commands)                                                                            \
    X(control_refused)

typedef struct virtio_net {
    virtio v; /* first */
    net_port port;
    char uplink[32]; /* the port's name, as in its attributes */
    virtio_list arrived[NET_QUEUES];
    net_receiver receiver[NET_PAIRS];
    unsigned pairs;                     /* that the driver uses */
    bool may_start;                     /* once for each tick */
    bool started, clean;                /* clean: frames of before the driver's start are dropped */
    unsigned stale[NET_PORT_QUEUES];    /* how many of each may still be dropped */
    unsigned turn[NET_PORT_QUEUES];     /* frames that may still be received before the next tick */
    uint32_t reading[NET_QUEUES];       /* bytes of what is read, or waits to leave */
    uint64_t now_ns;                    /* of the last tick */
    uint8_t address[NET_ADDRESS_BYTES]; /* its own; the driver's is in v.config */
    net_filter filter;
#define NET_FIELD(name) uint64_t name;
    struct {
        NET_COUNTERS(NET_FIELD)
    } count;
#undef NET_FIELD
} virtio_net;

/* A command is here: its answer, 0 or 1. */
uint8_t net_control(virtio_net *n, const uint8_t *command, uint32_t bytes);
bool net_passes(const virtio_net *n, const uint8_t *frame, uint32_t bytes); /* without the header */
void net_filter_reset(virtio_net *n);

#endif /* VIRTIO_NET_MODEL_H_INCLUDED */
