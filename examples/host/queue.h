/* queue.h - TLPs that wait until a slot's line has room, in PCIe's order
   SPDX-License-Identifier: MIT

   Each class keeps its own order.  Requests and completions wait for the posted TLPs before them;
   posted TLPs wait for nothing but each other (Base Spec 2.4.1).  A link event goes behind all that
   was queued before it, and nothing queued after it goes before (D-35). */
#ifndef QUEUE_H_INCLUDED
#define QUEUE_H_INCLUDED

#include "dxpu.h"

typedef struct queue_item {
    uint64_t user;
    uint8_t *bytes;
    uint32_t after; /* that many posted TLPs go before it */
    uint16_t len;
} queue_item;

typedef struct queue_class {
    queue_item *items; /* ring of `capacity` */
    uint8_t *room;     /* `bytes` of each; larger TLPs are allocated */
    uint32_t capacity, bytes;
    uint32_t head, tail;
} queue_class;

enum { QUEUE_EVENTS = 16 };

typedef struct queue_barrier {
    dxpu_event event;
    uint32_t behind[DXPU_CLASSES]; /* tail of each class when it was queued */
} queue_barrier;

typedef struct tlp_queue {
    queue_class cls[DXPU_CLASSES];
    queue_barrier events[QUEUE_EVENTS];
    uint32_t event_head, event_tail;
} tlp_queue;

/* Room for `capacity` TLPs of a class, powers of two, of `bytes` each without allocation.  0, or -1
   out of memory. */
int queue_init(tlp_queue *q, unsigned cls, uint32_t capacity, uint32_t bytes);
void queue_free(tlp_queue *q);
uint32_t queue_used(const tlp_queue *q, unsigned cls);
/* Copy a TLP to the end; false when there is no room. */
bool queue_push(tlp_queue *q, unsigned cls, dxpu_bytes tlp, uint64_t user);
/* The next one that order lets go, NULL for none. */
const queue_item *queue_peek(const tlp_queue *q, unsigned cls);
/* The next one, whatever waits before it; NULL for none. */
const queue_item *queue_first(const tlp_queue *q, unsigned cls);
void queue_pop(tlp_queue *q, unsigned cls);
/* The same of link events. */
bool queue_push_event(tlp_queue *q, const dxpu_event *e);
const dxpu_event *queue_peek_event(const tlp_queue *q);
void queue_pop_event(tlp_queue *q);
void queue_clear_events(tlp_queue *q);

#endif /* QUEUE_H_INCLUDED */
