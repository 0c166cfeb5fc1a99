/* probe.h - a device's base address registers and largest payload, before the guest sees it
   SPDX-License-Identifier: MIT

   A device that does not fit into its slot's windows must not be shown to the guest, so its BARs
   are sized first: each is read, written with ones, read again, and put back (Base Spec 7.5.1.2).
   The payload is in Device Capabilities (7.5.3.3): its port comes up with that.
   A multi-function device has functions 0 to 7; those beyond, of ARI, are not looked at.
   Pure: the owner sends the requests and brings the answers. */
#ifndef PROBE_H_INCLUDED
#define PROBE_H_INCLUDED

#include "bars.h"
#include "dxpu_vswitch.h"

enum {
    PROBE_FUNCTIONS = 8,
    PROBE_BARS = BARS_COUNT,
    PROBE_BARS_MAX = PROBE_FUNCTIONS * PROBE_BARS
};

typedef struct probe {
    unsigned function, step; /* of the function */
    unsigned bars;           /* that its header has */
    bool many;               /* function 0 says that there are others */
    unsigned retries;        /* answers so far that said "not yet" */
    bool running;
    bool sent;          /* a request that is not answered yet */
    bool failed;        /* the device does not answer as one does */
    bool wait;          /* it asked for time: send the same request again after PROBE_RETRY_NS */
    bool again;         /* the device was reset meanwhile: begin again */
    uint8_t capability; /* of the function: the one that is read next; 0: where the first one is */
    bool express;       /* it is PCI Express: its Device Capabilities are next */
    unsigned hops;      /* along the list, which may have no end */
    unsigned
        mps_code; /* the smallest of the largest Max_Payload_Sizes, plus 1; 0: none was found */
    uint32_t before;
    uint32_t sized[PROBE_FUNCTIONS][PROBE_BARS];
} probe;

enum { PROBE_RETRY_NS = 10000000, PROBE_RETRIES = 100 };

void probe_start(probe *p);
/* The next request and its payload; false: all is known, or nothing will be (failed). */
bool probe_request(probe *p, dxpu_tlp *t, uint8_t data[4]);
/* Its completion; NULL: none will come. */
void probe_answer(probe *p, const dxpu_tlp *cpl);
/* What was found; how many. */
unsigned probe_bars(const probe *p, dxpu_vswitch_bar out[PROBE_BARS_MAX]);
/* The largest Max_Payload_Size that all functions support; 0: they do not say so. */
uint32_t probe_mps_bytes(const probe *p);

#endif /* PROBE_H_INCLUDED */
