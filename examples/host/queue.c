/* queue.c - see queue.h
   SPDX-License-Identifier: MIT */
#include "queue.h"

#include <stdlib.h>

int queue_init(tlp_queue *q, unsigned cls, uint32_t capacity, uint32_t bytes)
{
    queue_class *c = &q->cls[cls];
    memset(c, 0, sizeof *c);
    c->capacity = capacity;
    c->bytes = bytes;
    c->items = calloc(capacity, sizeof *c->items);
    c->room = calloc(capacity, bytes);
    return c->items && c->room ? 0 : -1;
}

void queue_free(tlp_queue *q)
{
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        while (queue_first(q, cls))
            queue_pop(q, cls);
        free(q->cls[cls].items);
        free(q->cls[cls].room);
    }
    memset(q, 0, sizeof *q);
}

uint32_t queue_used(const tlp_queue *q, unsigned cls)
{
    return q->cls[cls].tail - q->cls[cls].head;
}

bool queue_push(tlp_queue *q, unsigned cls, dxpu_bytes tlp, uint64_t user)
{
    queue_class *c = &q->cls[cls];
    uint32_t at = c->tail & (c->capacity - 1);
    queue_item *item = &c->items[at];
    if (queue_used(q, cls) >= c->capacity || tlp.len > DXPU_TLP_MAX_BYTES)
        return false;
    item->bytes = tlp.len <= c->bytes ? c->room + (size_t)at * c->bytes : malloc(tlp.len);
    if (!item->bytes)
        return false;
    memcpy(item->bytes, tlp.ptr, tlp.len);
    item->len = (uint16_t)tlp.len;
    item->user = user;
    item->after = q->cls[DXPU_POSTED].tail;
    c->tail++;
    return true;
}

const queue_item *queue_first(const tlp_queue *q, unsigned cls)
{
    const queue_class *c = &q->cls[cls];
    return c->head == c->tail ? NULL : &c->items[c->head & (c->capacity - 1)];
}

/* All of a class that was queued before the first event is gone. */
static bool at_barrier(const tlp_queue *q, unsigned cls)
{
    return q->event_head != q->event_tail &&
           q->cls[cls].head == q->events[q->event_head % QUEUE_EVENTS].behind[cls];
}

const queue_item *queue_peek(const tlp_queue *q, unsigned cls)
{
    const queue_item *item = at_barrier(q, cls) ? NULL : queue_first(q, cls);
    /* counters run on: `after` posted TLPs are gone when the head has come so far */
    return item && (int32_t)(q->cls[DXPU_POSTED].head - item->after) >= 0 ? item : NULL;
}

void queue_pop(tlp_queue *q, unsigned cls)
{
    queue_class *c = &q->cls[cls];
    queue_item *item = &c->items[c->head++ & (c->capacity - 1)];
    if (item->len > c->bytes)
        free(item->bytes);
    item->bytes = NULL;
}

bool queue_push_event(tlp_queue *q, const dxpu_event *e)
{
    queue_barrier *b = &q->events[q->event_tail % QUEUE_EVENTS];
    if (q->event_tail - q->event_head >= QUEUE_EVENTS)
        return false;
    b->event = *e;
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++)
        b->behind[cls] = q->cls[cls].tail;
    q->event_tail++;
    return true;
}

const dxpu_event *queue_peek_event(const tlp_queue *q)
{
    for (unsigned cls = 0; cls < DXPU_CLASSES; cls++) {
        if (!at_barrier(q, cls))
            return NULL;
    }
    return &q->events[q->event_head % QUEUE_EVENTS].event;
}

void queue_pop_event(tlp_queue *q)
{
    q->event_head++;
}

void queue_clear_events(tlp_queue *q)
{
    q->event_head = q->event_tail;
}
