/* dxpu_af_xdp_neighbour.h - where a packet goes: the kernel's routes and neighbours, by netlink
   SPDX-License-Identifier: MIT

   The kernel resolves neighbours (ARP, ND); this only reads what it knows, and remembers it for a
   second.  Private to the binding. */
#ifndef DXPU_AF_XDP_NEIGHBOUR_H_INCLUDED
#define DXPU_AF_XDP_NEIGHBOUR_H_INCLUDED

#include "dxpu_af_xdp.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DXPU_XDP_HOPS = 1024, DXPU_XDP_HOP_PROBES = 8 };

/* What the kernel said of the way to one address. */
typedef struct dxpu_xdp_hop {
    dxpu_xdp_address to, from; /* from: what the kernel would send from; ports are 0 */
    uint64_t asked_ns;         /* 0: the place is free */
    bool usable;               /* by our interface, to mac */
    bool old;                  /* the kernel would ask again before it goes on to use it */
    uint8_t mac[DXPU_XDP_MAC_BYTES];
} dxpu_xdp_hop;

typedef struct dxpu_xdp_hops {
    int fd;           /* netlink */
    uint32_t ifindex; /* of our interface */
    uint64_t asked_ns, questions;
    uint32_t sequence;
    dxpu_xdp_hop hop[DXPU_XDP_HOPS];
} dxpu_xdp_hops;

/* 0, or -1 with errno. */
int dxpu_xdp_hops_open(dxpu_xdp_hops *h, uint32_t ifindex);
void dxpu_xdp_hops_close(dxpu_xdp_hops *h);
/* The way from `from` (may be a wildcard) to `to`.  *first is true when the kernel was just asked.
   NULL when it may not be asked yet: it is asked at most every 50 us, for all senders together.
   Valid until the next call. */
const dxpu_xdp_hop *dxpu_xdp_hop_to(dxpu_xdp_hops *h, const dxpu_xdp_address *from,
                                    const dxpu_xdp_address *to, uint64_t now_ns, bool *first);

#ifdef __cplusplus
}
#endif
#endif /* DXPU_AF_XDP_NEIGHBOUR_H_INCLUDED */
