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

const queue_item *queue_peek(const tlp_queue *q, unsigned cls)
{
    const queue_item *item = queue_first(q, cls);
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
