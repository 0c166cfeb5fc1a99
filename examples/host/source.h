/* source.h - where the host proxy's TLPs come from: a capture, generated load, or a card
   SPDX-License-Identifier: MIT */
#ifndef SOURCE_H_INCLUDED
#define SOURCE_H_INCLUDED

#include "dxpu.h"
#include "stats.h"

enum { SOURCE_WHY_BYTES = 240 };
enum { SOURCE_REFUSED, SOURCE_TAKEN, SOURCE_LATER };

typedef struct source {
    void *self;
    /* A new incarnation is up: the device has been reset and nothing is in flight. */
    void (*start)(void *self, uint64_t now_ns);
    /* Submit what can leave now. */
    void (*work)(void *self, uint64_t now_ns);
    /* A completion for the request submitted with `user`; cpl is NULL when none will come. */
    void (*completion)(void *self, const dxpu_tlp *cpl, uint64_t user, bool last, uint64_t now_ns);
    /* Nothing more will be submitted. */
    bool (*done)(const void *self);
    /* When work() has something to do that no datagram announces; DXPU_NEVER for never. */
    uint64_t (*next_ns)(const void *self);
    /* How far it is, for people: "1200 of 5000". */
    void (*progress)(const void *self, char out[64]);
    void (*report)(const void *self, report *r);
    /* True when something was not as it must be: the exit status says so, and `why` to people. */
    bool (*wrong)(const void *self, char why[SOURCE_WHY_BYTES]);
    /* A request of the device, decoded strictly: SOURCE_TAKEN; _LATER: it stays where it is;
       _REFUSED: it is answered with Unsupported Request.  NULL: all are refused. */
    int (*request)(void *self, const dxpu_tlp *t, uint64_t now_ns);
} source;

#endif /* SOURCE_H_INCLUDED */
