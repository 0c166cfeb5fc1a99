/* virtio_net_driver.h - for tests of the virtio network adapter: its driver's buffers and commands
   SPDX-License-Identifier: MIT

   Numbers are those of Virtual I/O Device 1.2, 5.1.  Include as virtio_driver.h. */
#ifndef VIRTIO_NET_DRIVER_H_INCLUDED
#define VIRTIO_NET_DRIVER_H_INCLUDED

#include "virtio_driver.h"

enum { RX = 0, TX = 1, CTRL = 2, QUEUES = 3 /* of one pair */, HEADER = 12, ROOM = 2048 };

#define F_CSUM       (1ull << 0)
#define F_GUEST_CSUM (1ull << 1)
#define F_MAC        (1ull << 5)
#define F_GUEST_TSO4 (1ull << 7)
#define F_GUEST_TSO6 (1ull << 8)
#define F_GUEST_ECN  (1ull << 9)
#define F_HOST_TSO4  (1ull << 11)
#define F_HOST_TSO6  (1ull << 12)
#define F_HOST_ECN   (1ull << 13)
#define F_MRG        (1ull << 15)
#define F_STATUS     (1ull << 16)
#define F_CTRL       (1ull << 17)
#define F_CTRL_RX    (1ull << 18)
#define F_CTRL_VLAN  (1ull << 19)
#define F_CTRL_EXTRA (1ull << 20)
#define F_MQ         (1ull << 22)
#define F_CTRL_MAC   (1ull << 23)
#define F_USUAL      (F_MAC | F_MRG | F_CTRL | F_VERSION_1 | F_PLATFORM)
#define F_FILTERS    (F_USUAL | F_CTRL_RX | F_CTRL_VLAN | F_CTRL_EXTRA | F_CTRL_MAC)

static uint64_t now_ns;

static inline void tick(driver *d)
{
    now_ns += 1000000;
    d->r.kind->tick(d->r.dev, now_ns);
    rc_run(&d->r);
}

static inline uint8_t *buffer(driver *d, unsigned i)
{
    return d->r.mem + AT_DATA + i * (uint32_t)ROOM;
}

/* Buffers first .. first + count - 1 are there to be filled, `bytes` of each. */
static inline void give_buffers_to(driver *d, unsigned queue, unsigned first, unsigned count,
                                   uint32_t bytes)
{
    for (unsigned i = first; i < first + count; i++) {
        put_desc(ring_mem(d, queue, 0), i, MEM_HIGH + AT_DATA + i * (uint64_t)ROOM, bytes, WRITE,
                 0);
        avail_put(d, queue, (uint16_t)i);
    }
    notify(d, queue);
    rc_run(&d->r);
}

static inline void give_buffers(driver *d, unsigned first, unsigned count, uint32_t bytes)
{
    give_buffers_to(d, RX, first, count, bytes);
}

/* A frame with its header, of `bytes` in all. */
static inline void make_frame(uint8_t *f, uint32_t bytes, unsigned seed)
{
    fill(f, bytes, seed);
    memset(f, 0, HEADER);
    memcpy(f + HEADER, "\x02\x11\x22\x33\x44\x55", 6); /* the device's own address */
    f[HEADER + 12] = 0x08;
    f[HEADER + 13] = 0x00;
}

static inline void expect_used(driver *d, unsigned q, unsigned head, uint32_t bytes)
{
    uint32_t got = 99, len;
    assert_true(reap(d, q, &got, &len));
    assert_int_equal(got, head);
    assert_int_equal(len, bytes);
}

static inline void expect_nothing(driver *d, unsigned q)
{
    uint32_t head, len;
    assert_false(reap(d, q, &head, &len));
}

/* A frame of the driver in buffer `i`, in two pieces. */
static inline void submit(driver *d, unsigned i, uint32_t bytes)
{
    uint64_t at = MEM_LOW + AT_DATA + i * (uint64_t)ROOM;
    put_desc(ring_mem(d, TX, 0), i, at, HEADER, NEXT, i + 1);
    put_desc(ring_mem(d, TX, 0), i + 1, at + HEADER, bytes - HEADER, 0, 0);
    avail_put(d, TX, (uint16_t)i);
}

/* A command to the last queue: its answer. */
static inline uint8_t control(driver *d, unsigned cls, unsigned command, const void *data,
                              uint32_t bytes)
{
    uint8_t *c = d->r.mem + AT_HEADERS;
    uint32_t head, len;
    unsigned queue = d->queues - 1;
    c[0] = (uint8_t)cls;
    c[1] = (uint8_t)command;
    if (bytes)
        memcpy(c + 2, data, bytes);
    c[0x1000] = 0xff;
    put_desc(ring_mem(d, queue, 0), 0, MEM_LOW + AT_HEADERS, 2 + bytes, NEXT, 1);
    put_desc(ring_mem(d, queue, 0), 1, MEM_LOW + AT_HEADERS + 0x1000, 1, WRITE, 0);
    avail_put(d, queue, 0);
    notify(d, queue);
    rc_run(&d->r);
    assert_true(reap(d, queue, &head, &len));
    return c[0x1000];
}

#endif /* VIRTIO_NET_DRIVER_H_INCLUDED */
