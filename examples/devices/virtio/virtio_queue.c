/* virtio_queue.c - split rings, descriptors, requests, interrupts of a virtio device
   SPDX-License-Identifier: MIT

   Each read of the driver's memory is a round trip through the fabric, so one `look` reads at once
   the avail index, used_event, ring entries and descriptors.  An entry counts only if it was known
   to be available when the look began: its ring entry and its descriptors were there before.  The
   descriptors that are read ahead are a window from the first on, as wide as the driver has used.

   With EVENT_IDX the device asks for a notification of whatever follows the entries that it knows
   (avail_event), and looks again after that, since the driver may have been quicker.  Whether it
   interrupts follows from used_event as last seen; when that says no, a look that begins after the
   used index was written decides.

   CONTENTS   1 Lists and life   2 Chains   3 Looks   4 Transfers   5 The used ring   6 The pump */
#include "virtio.h"

#include <stdlib.h>

enum {
    DESCRIPTOR_NEXT = 1, /* flags */
    DESCRIPTOR_WRITE = 2,
    DESCRIPTOR_INDIRECT = 4,
    AVAIL_NO_INTERRUPT = 1,
    WINDOW_LEAST = 4,
    RING_BYTES = 4,       /* before the entries of a ring: flags and index */
    USED_ENTRY_BYTES = 8, /* head and length */
    TURN_BYTES = 4096     /* of a request's data, before the next request's */
};

/* ==== 1  Lists and life ======================================================================= */

void virtio_list_clear(virtio_list *l)
{
    l->head = NULL;
    l->tail = &l->head;
}

void virtio_list_append(virtio_list *l, virtio_request *r)
{
    r->next = NULL;
    *l->tail = r;
    l->tail = &r->next;
}

virtio_request *virtio_list_take(virtio_list *l)
{
    virtio_request *r = l->head;
    if (r)
        virtio_list_remove(l, r);
    return r;
}

void virtio_list_remove(virtio_list *l, virtio_request *r)
{
    for (virtio_request **at = &l->head; *at; at = &(*at)->next) {
        if (*at != r)
            continue;
        *at = r->next;
        if (!*at)
            l->tail = at;
        r->next = NULL;
        return;
    }
}

virtio_request *virtio_pooled(virtio *v, unsigned i)
{
    return (virtio_request *)(void *)(v->pool + v->set.request_bytes * i);
}

/* NULL: all of them are in use. */
static virtio_request *request_new(virtio *v)
{
    if (v->free.head || v->fresh == v->set.requests)
        return virtio_list_take(&v->free);
    return virtio_pooled(v, v->fresh++);
}

static void request_release(virtio *v, virtio_request *r)
{
    v->type->release(v, r);
    r->used = false;
    virtio_list_append(&v->free, r);
}

/* It is gone for the driver; while its job runs it is kept. */
static void request_drop(virtio *v, virtio_request *r)
{
    fn_fetch_cancel(&v->fn, &r->fetch);
    virtio_list_remove(&v->sending, r);
    if (r->busy && !v->jobs.cancel(v->jobs.user, &r->job)) {
        r->dropped = true;
        v->dropped++;
        v->count.accesses_dropped++;
        return;
    }
    r->busy = false;
    request_release(v, r);
}

void virtio_queue_default(virtio_queue *q)
{
    memset(q, 0, sizeof *q);
    q->size = VIRTIO_SIZE_MAX;
    q->vector = 0xffff;
    virtio_list_clear(&q->done);
    virtio_list_clear(&q->arriving);
}

void virtio_queue_drop(virtio *v, virtio_queue *q)
{
    if (q->look.under_way)
        fn_fetch_cancel(&v->fn, &q->look.fetch);
    q->look.under_way = false;
    virtio_list_clear(&q->done);
    virtio_list_clear(&q->arriving);
    for (unsigned i = 0; i < v->fresh; i++) {
        virtio_request *r = virtio_pooled(v, i);
        if (r->used && !r->dropped && r->queue == q)
            request_drop(v, r);
    }
}

void virtio_break(virtio *v)
{
    if (v->status & VIRTIO_NEEDS_RESET)
        return;
    v->count.broken++;
    v->status |= VIRTIO_NEEDS_RESET;
    for (unsigned i = 0; i < v->set.queues; i++)
        virtio_queue_drop(v, &v->queue[i]);
    if (v->status & VIRTIO_DRIVER_OK) {
        v->isr |= 2;
        (void)fn_msix_signal(&v->fn, v->config_vector);
    }
}

/* False: it would not end where addresses do. */
static bool is_place(uint64_t address, uint64_t bytes)
{
    return bytes <= UINT64_MAX - address;
}

void virtio_queue_enable(virtio *v, virtio_queue *q)
{
    uint64_t n = q->size;
    if (!n || (n & (n - 1)) || !is_place(q->desc, n * VIRTIO_DESCRIPTOR_BYTES) ||
        !is_place(q->avail, RING_BYTES + 2 * n + 2) ||
        !is_place(q->used, RING_BYTES + USED_ENTRY_BYTES * n + 2)) {
        virtio_break(v);
        return;
    }
    q->enabled = q->look.wanted = true;
    q->window = q->size < WINDOW_LEAST ? q->size : WINDOW_LEAST;
    q->armed = 0xffff; /* no index of a new ring: avail_event is written before the first look */
}

bool virtio_running(const virtio *v)
{
    return (v->status & (VIRTIO_DRIVER_OK | VIRTIO_NEEDS_RESET)) == VIRTIO_DRIVER_OK && !v->dropped;
}

/* ==== 2  Chains =============================================================================== */

typedef enum chain { CHAIN_WHOLE, CHAIN_INDIRECT, CHAIN_BEYOND, CHAIN_BAD } chain;

static bool chain_add(virtio_request *r, uint64_t address, uint32_t bytes, bool writable)
{
    fn_range *p = &r->piece[r->count];
    if (!is_place(address, bytes) || (!writable && r->count > r->readable))
        return false; /* what may be read comes first */
    if (!bytes)
        return true;
    if (r->count == VIRTIO_SIZE_MAX)
        return false;
    p->address = address;
    p->bytes = bytes;
    p->nowhere = false;
    r->count++;
    if (writable) {
        r->writable_bytes += bytes;
    } else {
        r->readable_bytes += bytes;
        r->readable++;
    }
    return true;
}

/* A descriptor of a table of indirect ones. */
static chain chain_indirect(virtio *v, virtio_request *r, const uint8_t *d)
{
    uint32_t bytes = dxpu_get_le32(d + 8);
    uint64_t address = dxpu_get_le64(d);
    if (!(v->accepted & VIRTIO_F_INDIRECT_DESC) || (dxpu_get_le16(d + 12) & DESCRIPTOR_NEXT) ||
        !bytes || bytes % VIRTIO_DESCRIPTOR_BYTES || bytes > sizeof r->table ||
        !is_place(address, bytes))
        return CHAIN_BAD;
    r->table_count = (uint16_t)(bytes / VIRTIO_DESCRIPTOR_BYTES);
    r->fetch.address = address;
    return CHAIN_INDIRECT;
}

/* Follow a chain from descriptor *at of a table of `limit`, of which the first `there` are at hand.
   CHAIN_BEYOND: descriptor *at is not among them. */
static chain chain_follow(virtio *v, virtio_request *r, const uint8_t *table, unsigned there,
                          unsigned limit, uint16_t *at)
{
    for (unsigned steps = 0; steps < limit; steps++) {
        const uint8_t *d;
        unsigned flags;
        if (*at >= limit)
            return CHAIN_BAD;
        if (*at >= there)
            return CHAIN_BEYOND;
        d = table + (size_t)*at * VIRTIO_DESCRIPTOR_BYTES;
        flags = dxpu_get_le16(d + 12);
        if (flags & DESCRIPTOR_INDIRECT)
            return r->table_count ? CHAIN_BAD : chain_indirect(v, r, d);
        if (!chain_add(r, dxpu_get_le64(d), dxpu_get_le32(d + 8), flags & DESCRIPTOR_WRITE))
            return CHAIN_BAD;
        if (!(flags & DESCRIPTOR_NEXT))
            return CHAIN_WHOLE;
        *at = dxpu_get_le16(d + 14);
    }
    return CHAIN_BAD; /* a loop */
}

static void request_begin(virtio *v, virtio_request *r)
{
    r->next_writable = r->readable;
    v->count.requests++;
    v->type->request(v, r);
}

/* All descriptors of r are there.  Tables of indirect ones arrive in any order. */
static void request_whole(virtio *v, virtio_request *r)
{
    virtio_list *l = &r->queue->arriving;
    r->whole = true;
    if (!v->set.ordered)
        request_begin(v, r);
    while (l->head && l->head->whole)
        request_begin(v, virtio_list_take(l));
}

static void table_fetched(void *user, fn_fetch *f)
{
    virtio *v = user;
    virtio_request *r = f->owner;
    uint16_t at = 0;
    if (f->failed ||
        chain_follow(v, r, r->table, r->table_count, r->table_count, &at) != CHAIN_WHOLE)
        virtio_break(v);
    else
        request_whole(v, r);
}

static void table_fetch(virtio *v, virtio_request *r)
{
    v->count.indirect_requests++;
    r->fetch.ranges = NULL;
    r->fetch.to = r->table;
    r->fetch.bytes = r->table_count * (uint32_t)VIRTIO_DESCRIPTOR_BYTES;
    r->fetch.done = table_fetched;
    fn_fetch_start(&v->fn, &r->fetch);
}

/* A request that begins with nothing yet. */
static void request_clear(virtio_request *r, virtio_queue *q, uint16_t head)
{
    r->queue = q;
    r->used = true;
    r->busy = r->dropped = r->failed = r->has_status = r->whole = false;
    r->head = head;
    r->written = 0;
    r->readable_bytes = r->writable_bytes = 0;
    r->count = r->readable = r->next_readable = r->next_writable = r->table_count = 0;
    r->fetch.owner = r;
}

/* The chain at the queue's next entry becomes a request.  False: not now. */
static bool request_take(virtio *v, virtio_queue *q, uint16_t head, const uint8_t *table)
{
    virtio_request *r = request_new(v);
    uint16_t at = head;
    chain c;
    if (!r)
        return false;
    request_clear(r, q, head);
    c = chain_follow(v, r, table, q->look.window, q->size, &at);
    if (c == CHAIN_BAD) {
        virtio_break(v);
        return false;
    }
    if (c == CHAIN_BEYOND) { /* the next look reads as many as the driver seems to use */
        while (q->window <= at)
            q->window = (uint16_t)(q->window * 2);
        request_release(v, r);
        return false;
    }
    q->taken++;
    if (v->set.ordered)
        virtio_list_append(&q->arriving, r);
    if (c == CHAIN_INDIRECT)
        table_fetch(v, r);
    else
        request_whole(v, r);
    return true;
}

/* ==== 3  Looks ================================================================================ */

/* The driver's index moved to here.  False: it cannot have. */
static bool queue_know(virtio_queue *q, uint16_t index)
{
    uint16_t ahead = (uint16_t)(index - q->taken);
    if (ahead > q->size)
        return false;
    if (ahead > (uint16_t)(q->known - q->taken)) /* a notification may have said more already */
        q->known = index;
    return true;
}

void virtio_notified(virtio *v, virtio_queue *q, const uint16_t *index)
{
    v->count.notifications++;
    if (!q->enabled)
        return;
    q->look.wanted = true;
    if (index)
        (void)queue_know(
            q, *index); /* notifications may overtake one another: an old one counts for nothing */
}

/* Does an interrupt follow from used entries `from` to `to`, as the driver was last seen? */
static bool is_interrupt_due(const virtio *v, const virtio_queue *q, uint16_t from, uint16_t to)
{
    if (v->accepted & VIRTIO_F_EVENT_IDX)
        return (uint16_t)(to - q->used_event - 1) < (uint16_t)(to - from);
    return from != to && !(q->flags & AVAIL_NO_INTERRUPT);
}

static void queue_interrupt(virtio *v, const virtio_queue *q)
{
    if (!fn_msix_signal(&v->fn, q->vector))
        v->isr |= 1; /* without MSI-X there is no interrupt, but the driver may look */
}

static void look_over(virtio *v, virtio_queue *q)
{
    const uint8_t *bytes = q->look.bytes;
    uint16_t heads[VIRTIO_BATCH];
    bool event = (v->accepted & VIRTIO_F_EVENT_IDX) != 0;
    if (!queue_know(q, dxpu_get_le16(bytes + 2))) {
        virtio_break(v);
        return;
    }
    q->flags = dxpu_get_le16(bytes);
    q->used_event = event ? dxpu_get_le16(bytes + 4) : 0;
    bytes += event ? 6 : 4;
    if ((uint16_t)(q->look.used_index - q->decided) <= q->size) { /* else it is decided already */
        if (is_interrupt_due(v, q, q->decided, q->look.used_index))
            queue_interrupt(v, q);
        q->decided = q->look.used_index;
    }
    for (unsigned i = 0; i < q->look.count; i++)
        heads[i] = dxpu_get_le16(bytes + (size_t)i * 2);
    bytes += (size_t)q->look.count * 2;
    for (unsigned i = 0; i < q->look.count; i++) {
        if (!request_take(v, q, heads[i], bytes) || (v->status & VIRTIO_NEEDS_RESET))
            return;
    }
}

static void look_fetched(void *user, fn_fetch *f)
{
    virtio *v = user;
    virtio_queue *q = f->owner;
    q->look.under_way = false;
    if (f->failed)
        virtio_break(v);
    else
        look_over(v, q);
}

static void look_add(virtio_queue *q, unsigned *count, uint64_t address, uint32_t bytes)
{
    if (!bytes)
        return;
    q->look.ranges[*count].address = address;
    q->look.ranges[*count].bytes = bytes;
    q->look.ranges[*count].nowhere = false;
    q->look.fetch.bytes += bytes;
    (*count)++;
}

/* How many entries there is room for. */
static uint16_t look_entries(const virtio *v, const virtio_queue *q)
{
    uint16_t count = (uint16_t)(q->known - q->taken);
    unsigned room = v->set.requests - v->fresh;
    count = count < VIRTIO_BATCH ? count : VIRTIO_BATCH;
    for (const virtio_request *r = v->free.head; r && room < count; r = r->next)
        room++;
    return room < count ? (uint16_t)room : count;
}

static void look_begin(virtio *v, virtio_queue *q)
{
    unsigned n = 0, first = q->taken % q->size;
    uint16_t count = look_entries(v, q);
    unsigned part = count < q->size - first ? count : q->size - first;
    q->look.wanted = false;
    q->look.under_way = true;
    q->look.count = count;
    q->look.window = count ? q->window : 0;
    q->look.used_index = q->used_index;
    q->look.fetch.bytes = 0;
    look_add(q, &n, q->avail, RING_BYTES);
    if (v->accepted & VIRTIO_F_EVENT_IDX)
        look_add(q, &n, q->avail + RING_BYTES + 2u * q->size, 2);
    look_add(q, &n, q->avail + RING_BYTES + 2u * first, 2 * part);
    look_add(q, &n, q->avail + RING_BYTES, 2u * (count - part));
    look_add(q, &n, q->desc, q->look.window * (uint32_t)VIRTIO_DESCRIPTOR_BYTES);
    q->look.fetch.ranges = q->look.ranges;
    q->look.fetch.to = q->look.bytes;
    q->look.fetch.done = look_fetched;
    q->look.fetch.owner = q;
    v->count.looks++;
    fn_fetch_start(&v->fn, &q->look.fetch);
}

/* Ask for a notification of what comes after the entries that are known. */
static void queue_arm(virtio *v, virtio_queue *q)
{
    uint8_t index[2];
    if (!(v->accepted & VIRTIO_F_EVENT_IDX) || q->armed == q->known)
        return;
    dxpu_put_le16(index, q->known);
    fn_write(&v->fn, q->used + RING_BYTES + (uint64_t)USED_ENTRY_BYTES * q->size, index, 2);
    q->armed = q->known;
    q->look.wanted = true;
}

static bool queue_look(virtio *v, virtio_queue *q)
{
    if (!q->enabled || q->look.under_way || !fn_room(&v->fn))
        return false;
    queue_arm(v, q);
    if (!q->look.wanted && (q->taken == q->known || (!v->free.head && v->fresh == v->set.requests)))
        return false;
    look_begin(v, q);
    return true;
}

/* ==== 4  Transfers ============================================================================ */

/* The next bytes of the request's memory are moved. */
static void consume(virtio_request *r, uint16_t *at, uint32_t bytes)
{
    while (bytes) {
        fn_range *p = &r->piece[*at];
        uint32_t part = bytes < p->bytes ? bytes : p->bytes;
        p->address += part;
        p->bytes -= part;
        bytes -= part;
        if (!p->bytes)
            (*at)++;
    }
}

static void request_fetched(void *user, fn_fetch *f)
{
    virtio_request *r = f->owner;
    r->failed = f->failed;
    consume(r, &r->next_readable, f->bytes);
    r->then(user, r);
}

void virtio_read(virtio *v, virtio_request *r, uint8_t *to, uint32_t bytes, virtio_then *then)
{
    DXPU_ASSERT(bytes && bytes <= r->readable_bytes);
    r->then = then;
    r->readable_bytes -= bytes;
    r->fetch.ranges = &r->piece[r->next_readable];
    r->fetch.to = to;
    r->fetch.bytes = bytes;
    r->fetch.done = request_fetched;
    fn_fetch_start(&v->fn, &r->fetch);
}

void virtio_write(virtio *v, virtio_request *r, uint8_t *from, uint32_t bytes, virtio_then *then)
{
    DXPU_ASSERT(bytes && bytes <= r->writable_bytes);
    r->then = then;
    r->writable_bytes -= bytes;
    r->fetch.ranges = &r->piece[r->next_writable];
    r->fetch.to = from;
    r->fetch.bytes = bytes;
    r->fetch.asked = r->fetch.range = r->fetch.at = 0;
    virtio_list_append(&v->sending, r);
}

/* A turn of one request's data. */
static void send_turn(virtio *v, fn_fetch *x)
{
    uint32_t stop = x->bytes - x->asked;
    stop = x->asked + (stop < TURN_BYTES ? stop : TURN_BYTES);
    while (x->asked < stop) {
        uint32_t bytes, most = stop - x->asked;
        uint64_t to = fn_fetch_at(x, &bytes);
        bytes = fn_write_one(&v->fn, to, x->to + x->asked, bytes < most ? bytes : most);
        fn_fetch_advance(x, bytes);
    }
}

static bool requests_send(virtio *v)
{
    bool any = false;
    while (v->sending.head && fn_room(&v->fn)) {
        virtio_request *r = virtio_list_take(&v->sending);
        any = true;
        send_turn(v, &r->fetch);
        if (r->fetch.asked < r->fetch.bytes) {
            virtio_list_append(&v->sending, r);
            continue;
        }
        consume(r, &r->next_writable, r->fetch.bytes);
        r->written += r->fetch.bytes;
        r->then(v, r);
    }
    return any;
}

void virtio_has_status(virtio_request *r)
{
    fn_range *p = &r->piece[r->count - 1];
    DXPU_ASSERT(r->writable_bytes);
    r->writable_bytes--;
    p->bytes--;
    if (!p->bytes)
        r->count--;
    r->has_status = true;
    r->status_at = p->address + p->bytes;
}

void virtio_submit(virtio *v, virtio_request *r, virtio_then *then)
{
    r->then = then;
    r->busy = true;
    v->jobs.submit(v->jobs.user, &r->job);
}

bool virtio_reap(virtio *v)
{
    virtio_request *r = (virtio_request *)v->jobs.reap(v->jobs.user);
    if (!r)
        return false;
    r->busy = false;
    if (v->type->ended)
        v->type->ended(v, r);
    if (r->dropped) {
        v->dropped--;
        r->dropped = false;
        request_release(v, r);
    } else {
        r->then(v, r);
    }
    return true;
}

/* ==== 5  The used ring ======================================================================== */

void virtio_finish(virtio_request *r, uint8_t status)
{
    r->status = status;
    if (r->has_status && !r->writable_bytes) /* it follows what was written */
        r->written++;
    virtio_list_append(&r->queue->done, r);
}

/* Entries up to the end of the ring go in one piece. */
static void post_some(virtio *v, virtio_queue *q)
{
    uint8_t entries[VIRTIO_SIZE_MAX * USED_ENTRY_BYTES];
    unsigned first = q->used_index % q->size, count = 0;
    while (q->done.head && first + count < q->size) {
        virtio_request *r = virtio_list_take(&q->done);
        uint8_t *e = entries + (size_t)count * USED_ENTRY_BYTES;
        if (r->has_status)
            fn_write(&v->fn, r->status_at, &r->status, 1);
        dxpu_put_le32(e, r->head);
        dxpu_put_le32(e + 4, r->written);
        count++;
        request_release(v, r);
    }
    fn_write(&v->fn, q->used + RING_BYTES + (uint64_t)USED_ENTRY_BYTES * first, entries,
             count * (uint32_t)USED_ENTRY_BYTES);
    q->used_index = (uint16_t)(q->used_index + count);
}

static bool queue_post(virtio *v, virtio_queue *q)
{
    uint8_t index[2];
    if (!q->done.head || !fn_room(&v->fn))
        return false;
    while (q->done.head)
        post_some(v, q);
    dxpu_put_le16(index, q->used_index);
    fn_write(&v->fn, q->used + 2, index, sizeof index);
    if (is_interrupt_due(v, q, q->decided, q->used_index)) {
        queue_interrupt(v, q);
        q->decided = q->used_index;
    } else {
        q->look.wanted = true; /* the driver may want one by now */
    }
    return true;
}

/* ==== 6  The pump ============================================================================= */

void virtio_pump(virtio *v)
{
    bool any = true;
    while (any) {
        any = false;
        while (virtio_reap(v))
            any = true;
        if (!virtio_running(v) || !fn_masters(&v->fn))
            continue;
        any |= requests_send(v);
        any |= v->type->work(v);
        for (unsigned i = 0; i < v->set.queues && virtio_running(v); i++) {
            any |= queue_post(v, &v->queue[i]);
            any |= queue_look(v, &v->queue[i]);
        }
        any |= fn_fetch_ask(&v->fn);
    }
}
