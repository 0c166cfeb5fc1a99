/* bypass.h - lets the UDP port of a program send and receive by AF_XDP where it can
   SPDX-License-Identifier: MIT */
#ifndef BYPASS_H_INCLUDED
#define BYPASS_H_INCLUDED

#include "dxpu_af_xdp.h"
#include "dxpu_libevent.h"
#include "stats.h"

#if DXPU_AF_XDP
#define BYPASS_NOTE ""
#else
#define BYPASS_NOTE " (built without)"
#endif

/* The same address. */
void bypass_address(const dxpu_udp_address *from, dxpu_xdp_address *to);
/* Configuration from the text of --af-xdp and the sockets of u.  NULL, or what is wrong. */
const char *bypass_config(const char *text, const dxpu_udp *u, dxpu_xdp_config *cfg);
/* Open by the text of --af-xdp, below u, for loop number `loop` of `loops`; beside: that of loop 0,
   for all others.  NULL after a message; close after u. */
dxpu_xdp *bypass_open(dxpu_udp *u, const char *text, bool ecn_capable, unsigned loop,
                      unsigned loops, dxpu_xdp *beside);
/* One object "af_xdp". */
void bypass_report(dxpu_xdp *x, report *r);

#endif /* BYPASS_H_INCLUDED */
