/* virtio_net.c - see virtio_net.h
   SPDX-License-Identifier: MIT

   Queues are pairs, first of what is received, then of what is sent; the control queue comes after
   the pairs that were negotiated.

   CONTENTS   1 Object   2 Receiving   3 Sending   4 Control   5 Requests   6 Reset   7 Kind */
#include "virtio_net_model.h"

#include <stdlib.h>

/* ==== 1  Object =============================================================================== */

enum { /* of the device's configuration */
       CONFIG_ADDRESS = 0,
       CONFIG_STATUS = 6,
       CONFIG_PAIRS = 8,
       CONFIG_BYTES = 12
};

enum { LINK_UP = 1 };

enum { /* of the header in front of a frame */
       HEADER_FLAGS = 0,
       HEADER_KIND = 1,
       HEADER_BUFFERS = 10,
       FLAG_NEEDS_CSUM = 1,
       KIND_NONE = 0,
       KIND_TCP4 = 1,
       KIND_TCP6 = 4,
       KIND_ECN = 0x80
};

enum { LEAST_BYTES = NET_PORT_HEADER + 14 };

static virtio_net *net_of(virtio *v)
{
    return (virtio_net *)v;
}

static net_request *request_of(virtio_request *r)
{
    return (net_request *)r;
}

static unsigned control_queue(const virtio_net *n)
{
    return n->v.accepted & NET_F_MQ ? 2 * n->port.queues : 2;
}

static unsigned index_of(const virtio_net *n, const virtio_request *r)
{
    return (unsigned)(r->queue - n->v.queue);
}

static bool is_received(const virtio_net *n, unsigned queue)
{
    return queue % 2 == 0 && queue < control_queue(n);
}

/* ==== 2  Receiving ============================================================================ */

/* The driver can do what the header leaves to it. */
static bool is_understood(const virtio_net *n, uint8_t *header)
{
    uint64_t a = n->v.accepted;
    uint8_t kind = header[HEADER_KIND];
    if (!(a & NET_F_GUEST_CSUM)) {
        if (header[HEADER_FLAGS] & FLAG_NEEDS_CSUM)
            return false;
        header[HEADER_FLAGS] = 0;
    }
    if ((kind & KIND_ECN) && !(a & NET_F_GUEST_ECN))
        return false;
    kind &= (uint8_t)~KIND_ECN;
    return kind == KIND_NONE || (kind == KIND_TCP4 && (a & NET_F_GUEST_TSO4)) ||
           (kind == KIND_TCP6 && (a & NET_F_GUEST_TSO6));
}

/* The next frame of a queue of the port that the driver is to have.  False: none now. */
static bool read_frame(virtio_net *n, net_receiver *x, unsigned queue)
{
    size_t got = 0;
    while (n->turn[queue] && net_port_read(&n->port, queue, x->frame, sizeof x->frame, &got)) {
        n->turn[queue]--;
        if (got < LEAST_BYTES || !is_understood(n, x->frame)) {
            n->count.receive_dropped++;
        } else if (!net_passes(n, x->frame + NET_PORT_HEADER, (uint32_t)got - NET_PORT_HEADER)) {
            n->count.frames_filtered++;
        } else {
            x->bytes = (uint32_t)got;
            x->since_ns = n->now_ns;
            return true;
        }
    }
    if (!n->turn[queue] && n->port.ready[queue])
        net_port_arm(&n->port, queue); /* if there are more, the next tick comes at once */
    return false;
}

/* The pairs that the driver uses receive from all queues of the port. */
static bool next_frame(virtio_net *n, unsigned pair)
{
    for (unsigned i = pair; i < n->port.queues; i += n->pairs) {
        if (read_frame(n, &n->receiver[pair], i))
            return true;
    }
    return false;
}

static void part_written(virtio *v, virtio_request *r)
{
    virtio_net *n = net_of(v);
    net_receiver *x = &n->receiver[index_of(n, r) / 2];
    if (--x->writing)
        return;
    n->count.frames_received++;
    n->count.bytes_received += x->bytes - NET_PORT_HEADER;
    for (unsigned i = 0; i < x->parts; i++) {
        x->part[i]->filling = false;
        virtio_finish(&x->part[i]->r, 0);
    }
    x->bytes = 0;
}

/* How many buffers the frame takes; 0: more than there are. */
static unsigned parts_of(const virtio_net *n, unsigned pair)
{
    const net_receiver *x = &n->receiver[pair];
    uint64_t room = 0;
    unsigned parts = 0, most = n->v.accepted & NET_F_MRG_RXBUF ? VIRTIO_SIZE_MAX : 1;
    for (const virtio_request *r = n->arrived[2 * pair].head; r && parts < most; r = r->next) {
        parts++;
        room += r->writable_bytes;
        if (room >= x->bytes)
            return parts;
    }
    return 0;
}

/* No more buffers can come that would make it fit. */
static bool is_too_long(const virtio_net *n, unsigned pair)
{
    unsigned there = 0;
    for (const virtio_request *r = n->arrived[2 * pair].head; r; r = r->next)
        there++;
    return there && (!(n->v.accepted & NET_F_MRG_RXBUF) || there >= n->v.queue[2 * pair].size);
}

static void write_parts(virtio_net *n, unsigned pair, unsigned parts)
{
    net_receiver *x = &n->receiver[pair];
    uint32_t at = 0;
    dxpu_put_le16(x->frame + HEADER_BUFFERS, parts);
    x->parts = x->writing = parts;
    for (unsigned i = 0; i < parts; i++) {
        virtio_request *r = virtio_list_take(&n->arrived[2 * pair]);
        uint32_t left = x->bytes - at;
        uint32_t bytes = r->writable_bytes < left ? (uint32_t)r->writable_bytes : left;
        x->part[i] = request_of(r);
        x->part[i]->filling = true;
        virtio_write(&n->v, r, x->frame + at, bytes, part_written);
        at += bytes;
    }
}

static bool receive_work(virtio_net *n, unsigned pair)
{
    net_receiver *x = &n->receiver[pair];
    unsigned parts;
    if (x->writing || !n->arrived[2 * pair].head || (!x->bytes && !next_frame(n, pair)))
        return false;
    parts = parts_of(n, pair);
    if (parts) {
        write_parts(n, pair, parts);
        return true;
    }
    if (!is_too_long(n, pair) && n->now_ns - x->since_ns < NET_WAIT_NS)
        return false;
    n->count.receive_dropped++;
    x->bytes = 0;
    return true;
}

/* What arrived before the driver's start is not for it: all up to the first moment without a frame,
   but under a flood not for ever.  False: some may be left. */
static bool drop_stale(virtio_net *n, unsigned queue)
{
    net_receiver *x = &n->receiver[0];
    size_t got;
    if (!n->turn[queue])
        return !n->stale[queue];
    while (n->stale[queue] && n->turn[queue] &&
           net_port_read(&n->port, queue, x->frame, sizeof x->frame, &got)) {
        n->stale[queue]--;
        n->turn[queue]--;
    }
    if (!n->port.ready[queue])
        n->stale[queue] = 0;
    else if (!n->turn[queue])
        net_port_arm(&n->port, queue);
    return !n->stale[queue];
}

static void drop_all_stale(virtio_net *n)
{
    n->clean = true;
    for (unsigned i = 0; i < n->port.queues; i++)
        n->clean &= drop_stale(n, i);
}

/* ==== 3  Sending ============================================================================== */

static void fetched(virtio *v, virtio_request *r)
{
    (void)v;
    request_of(r)->fetched = true;
}

/* Read it, when there is memory for it.  What is too short or too long is `fetched` with
   nothing. */
static bool fetch(virtio_net *n, net_request *q, uint64_t least, uint64_t most)
{
    uint64_t bytes = q->r.readable_bytes;
    uint32_t *reading = &n->reading[index_of(n, &q->r)];
    if (bytes < least || bytes > most) {
        q->fetched = true;
        return true;
    }
    if (*reading + bytes > NET_SEND_BYTES / n->port.queues ||
        (q->data = malloc((size_t)bytes)) == NULL)
        return false;
    q->bytes = (uint32_t)bytes;
    *reading += q->bytes;
    virtio_read(&n->v, &q->r, q->data, q->bytes, fetched);
    return true;
}

/* All that have arrived are read at once. */
static bool fetch_all(virtio_net *n, virtio_list *l, uint64_t least, uint64_t most)
{
    bool any = false;
    for (virtio_request *r = l->head; r; r = r->next) {
        net_request *q = request_of(r);
        if (q->fetched || q->data)
            continue;
        if (!fetch(n, q, least, most))
            break;
        any = true;
    }
    return any;
}

/* The first of the list, when it is here. */
static net_request *first_fetched(virtio_list *l)
{
    return l->head && request_of(l->head)->fetched ? request_of(l->head) : NULL;
}

static bool send_work(virtio_net *n, unsigned pair)
{
    virtio_list *l = &n->arrived[2 * pair + 1];
    bool any = fetch_all(n, l, LEAST_BYTES, NET_PORT_FRAME), dropped = true;
    net_request *q = first_fetched(l);
    if (!q)
        return any;
    if (q->data && !q->r.failed) {
        memset(q->data + HEADER_BUFFERS, 0, 2);
        if (!net_port_write(&n->port, pair, q->data, q->bytes, &dropped))
            return any; /* again at the next tick */
    }
    n->count.send_dropped += dropped;
    n->count.frames_sent += !dropped;
    n->count.bytes_sent += dropped ? 0 : q->bytes - NET_PORT_HEADER;
    virtio_finish(virtio_list_take(l), 0);
    return true;
}

/* ==== 4  Control ============================================================================== */

static bool control_work(virtio_net *n)
{
    virtio_list *l = &n->arrived[control_queue(n)];
    bool any = fetch_all(n, l, 1, NET_COMMAND_BYTES);
    net_request *q = first_fetched(l);
    uint8_t answer = 1;
    if (!q)
        return any;
    (void)virtio_list_take(l);
    if (q->data && !q->r.failed)
        answer = net_control(n, q->data, q->bytes);
    n->count.control_commands++;
    n->count.control_refused += answer;
    virtio_finish(&q->r, answer);
    return true;
}

/* ==== 5  Requests ============================================================================= */

/* virtio_type.request */
static void net_request_begin(virtio *v, virtio_request *r)
{
    virtio_net *n = net_of(v);
    net_request *q = request_of(r);
    unsigned queue = index_of(n, r);
    q->fetched = q->filling = false;
    q->data = NULL;
    q->bytes = 0;
    if (queue == control_queue(n)) {
        if (!r->writable_bytes) {
            virtio_break(v); /* there is no place for its answer */
            return;
        }
        virtio_has_status(r);
    }
    if (queue > control_queue(n) || (is_received(n, queue) && !r->writable_bytes))
        virtio_finish(r, 0); /* of no use */
    else
        virtio_list_append(&n->arrived[queue], r);
}

/* virtio_type.release */
static void net_release(virtio *v, virtio_request *r)
{
    virtio_net *n = net_of(v);
    net_request *q = request_of(r);
    virtio_list_remove(&n->arrived[index_of(n, r)], r);
    if (q->filling) { /* the queue was taken away, and the frame with it */
        n->receiver[index_of(n, r) / 2].writing = 0;
        n->receiver[index_of(n, r) / 2].bytes = 0;
    }
    n->reading[index_of(n, r)] -= q->bytes;
    free(q->data);
    q->data = NULL;
    q->bytes = 0;
    q->filling = false;
}

/* The interface's settings need the kernel's lock of all interfaces, so that drivers that start
   repeatedly do it once for each tick. */
static void start(virtio_net *n)
{
    uint64_t a = n->v.accepted;
    if (!n->may_start)
        return;
    n->may_start = false;
    n->started = true;
    net_port_offload(&n->port, (a & NET_F_GUEST_CSUM ? NET_PORT_CSUM : 0u) |
                                   (a & NET_F_GUEST_TSO4 ? NET_PORT_TSO4 : 0u) |
                                   (a & NET_F_GUEST_TSO6 ? NET_PORT_TSO6 : 0u) |
                                   (a & NET_F_GUEST_ECN ? NET_PORT_ECN : 0u));
    for (unsigned i = 0; i < n->port.queues; i++) {
        n->stale[i] = NET_STALE;
        net_port_arm(&n->port, i);
    }
    net_port_poll(&n->port);
}

/* virtio_type.work */
static bool net_work(virtio *v)
{
    virtio_net *n = net_of(v);
    bool any = false;
    if (!n->started)
        start(n);
    if (n->started && !n->clean)
        drop_all_stale(n);
    for (unsigned i = 0; i < n->port.queues; i++) {
        if (i < n->pairs && n->clean)
            any |= receive_work(n, i);
        if (2 * i + 1 < control_queue(n))
            any |= send_work(n, i);
    }
    return any | control_work(n);
}

/* ==== 6  Reset ================================================================================ */

/* virtio_type.reset */
static void net_reset(virtio *v)
{
    virtio_net *n = net_of(v);
    for (unsigned i = 0; i < NET_PAIRS; i++)
        n->receiver[i].bytes = n->receiver[i].writing = 0;
    n->pairs = 1;
    n->started = n->clean = false;
    net_filter_reset(n);
}

/* virtio_type.fits: each feature with one of those that it requires (5.1.3.1). */
static bool net_fits(uint64_t features)
{
    static const struct {
        uint64_t feature, required;
    } rules[] = { { NET_F_GUEST_TSO4, NET_F_GUEST_CSUM },
                  { NET_F_GUEST_TSO6, NET_F_GUEST_CSUM },
                  { NET_F_GUEST_ECN, NET_F_GUEST_TSO4 | NET_F_GUEST_TSO6 },
                  { NET_F_HOST_TSO4, NET_F_CSUM },
                  { NET_F_HOST_TSO6, NET_F_CSUM },
                  { NET_F_HOST_ECN, NET_F_HOST_TSO4 | NET_F_HOST_TSO6 },
                  { NET_F_CTRL_RX, NET_F_CTRL_VQ },
                  { NET_F_CTRL_VLAN, NET_F_CTRL_VQ },
                  { NET_F_CTRL_EXTRA, NET_F_CTRL_VQ },
                  { NET_F_MQ, NET_F_CTRL_VQ },
                  { NET_F_CTRL_MAC, NET_F_CTRL_VQ } };
    for (unsigned i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if ((features & rules[i].feature) && !(features & rules[i].required))
            return false;
    }
    return true;
}

static const virtio_type net_type = { .request = net_request_begin,
                                      .release = net_release,
                                      .reset = net_reset,
                                      .work = net_work,
                                      .fits = net_fits };

/* ==== 7  Kind ================================================================================= */

static void net_tick(void *device, uint64_t now_ns)
{
    virtio_net *n = device;
    for (unsigned i = 0; i < n->port.queues; i++)
        n->turn[i] = NET_TURN / n->port.queues;
    n->may_start = true;
    n->now_ns = now_ns;
    net_port_poll(&n->port);
    virtio_tick(device, now_ns);
}

static void net_destroy(void *device)
{
    virtio_net *n = device;
    virtio_close(&n->v);
    net_port_close(&n->port);
    free(n);
}

/* One that no maker of devices has, of the device's identity. */
static void make_address(virtio_net *n, uint64_t identity)
{
    n->address[0] = 0x02;
    for (unsigned i = 1; i < NET_ADDRESS_BYTES; i++)
        n->address[i] = (uint8_t)(identity >> 8 * (NET_ADDRESS_BYTES - 1 - i));
}

static void *net_create(const device_settings *s, const device_port *port)
{
    virtio_setup setup = { .type = 1,
                           .class_code = VIRTIO_NET_CLASS,
                           .features = NET_F_CSUM | NET_F_GUEST_CSUM | NET_F_MAC |
                                       NET_F_GUEST_TSO4 | NET_F_GUEST_TSO6 | NET_F_GUEST_ECN |
                                       NET_F_HOST_TSO4 | NET_F_HOST_TSO6 | NET_F_HOST_ECN |
                                       NET_F_MRG_RXBUF | NET_F_STATUS | NET_F_CTRL_VQ |
                                       NET_F_CTRL_RX | NET_F_CTRL_VLAN | NET_F_CTRL_EXTRA |
                                       NET_F_CTRL_MAC,
                           .request_bytes = sizeof(net_request),
                           .config_bytes = CONFIG_BYTES,
                           .ordered = true };
    virtio_net *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    for (unsigned i = 0; i < NET_QUEUES; i++)
        virtio_list_clear(&n->arrived[i]);
    if (net_port_open(&n->port, s->tap, s->descriptor)) {
        free(n);
        return NULL;
    }
    if (s->tap)
        snprintf(n->uplink, sizeof n->uplink, "%s", s->tap);
    else
        snprintf(n->uplink, sizeof n->uplink, "fd%llu", (unsigned long long)s->descriptor);
    if (n->port.queues > 1)
        setup.features |= NET_F_MQ;
    setup.queues = 2 * n->port.queues + 1;
    setup.requests = setup.queues * VIRTIO_SIZE_MAX; /* buffers that wait keep none from others */
    make_address(n, s->identity);
    dxpu_put_le16(n->v.config + CONFIG_STATUS, LINK_UP);
    dxpu_put_le16(n->v.config + CONFIG_PAIRS, n->port.queues);
    if (virtio_open(&n->v, &setup, &net_type, s, port)) {
        net_destroy(n);
        return NULL;
    }
    return n;
}

/* device_kind.descriptor */
static int net_descriptor(const void *device)
{
    const virtio_net *n = device;
    return n->port.watch;
}

static void net_report(void *device, report *r)
{
    const virtio_net *n = device;
#define NET_PRINT(name) report_number(r, #name, n->count.name);
    NET_COUNTERS(NET_PRINT)
#undef NET_PRINT
    virtio_report(&n->v, r);
}

static void net_attributes(const void *device, char out[DEVICE_ATTRIBUTES_BYTES])
{
    const virtio_net *n = device;
    snprintf(out, DEVICE_ATTRIBUTES_BYTES, "uplink=%s", n->uplink);
}

const device_kind virtio_net_kind = { .name = "virtio-net",
                                      .model = "nic",
                                      .vendor = VIRTIO_NET_VENDOR,
                                      .device = VIRTIO_NET_DEVICE,
                                      .class_code = VIRTIO_NET_CLASS,
                                      .create = net_create,
                                      .destroy = net_destroy,
                                      .tlp = virtio_tlp,
                                      .event = virtio_event,
                                      .reset = virtio_reset,
                                      .report = net_report,
                                      .tick = net_tick,
                                      .descriptor = net_descriptor,
                                      .values = virtio_values,
                                      .attributes = net_attributes };
