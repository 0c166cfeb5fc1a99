/* virtio_rig.h - a virtio device in front of a driver, for targets that fuzz one
   SPDX-License-Identifier: MIT */
#ifndef VIRTIO_RIG_H_INCLUDED
#define VIRTIO_RIG_H_INCLUDED

#include "device_rig.h"
#include "virtio.h"

enum { /* of the host's memory and the device's place */
       BAR = 0x20000000,
       BDF = 0x0510,
       QUEUES = 3, /* that are made */
       AT_DATA = 0x10000,
       AT_TABLES = 0x8000,  /* 4 of indirect descriptors, 1 KB each */
       AT_HEADERS = 0xc000, /* 64 bytes for each request: header, status */
       AT_RINGS = 0x30000,  /* 8 KB for each queue: descriptors, avail ring, used ring */
       AT_AVAIL = 0x1000,
       AT_USED = 0x1800
};

enum { STATUS_OK = VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK };

static rc r;
static uint64_t features;
static uint16_t ring_size, made[QUEUES];

static inline void set(uint32_t offset, uint64_t value, unsigned bytes)
{
    uint8_t b[8];
    dxpu_put_le64(b, value);
    mmio_write(&r, BAR + offset, b, bytes);
}

static inline uint8_t *ring_mem(unsigned q, uint32_t part)
{
    return r.mem + AT_RINGS + q * 0x2000u + part;
}

static inline void make_queue(unsigned q)
{
    uint64_t at = MEM_LOW + AT_RINGS + q * 0x2000u;
    made[q] = 0;
    memset(ring_mem(q, AT_AVAIL), 0, 4);
    set(0x16, q, 2);
    set(0x18, ring_size, 2);
    set(0x1a, q + 1, 2);
    set(0x20, at, 8);
    set(0x28, at + AT_AVAIL, 8);
    set(0x30, at + AT_USED, 8);
    set(0x1c, 1, 2);
}

static inline void negotiate(void)
{
    set(0x14, 0, 1);
    set(0x14, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER, 1);
    for (unsigned i = 0; i < 2; i++) {
        set(0x08, i, 4);
        set(0x0c, (uint32_t)(features >> 32 * i), 4);
    }
    set(0x14, STATUS_OK, 1);
    for (unsigned q = 0; q < QUEUES; q++)
        make_queue(q);
    set(0x14, STATUS_OK | VIRTIO_DRIVER_OK, 1);
}

static inline void enable(void)
{
    r.bdf = BDF;
    cfg_write(&r, 0x10, BAR);
    cfg_write(&r, 0x14, 0);
    cfg_write_be(&r, 0x04, 0x0006, 0x3);
    for (uint32_t i = 0; i <= QUEUES; i++) {
        set(VIRTIO_TABLE + i * 16, MSI_BASE, 8);
        set(VIRTIO_TABLE + i * 16 + 8, i, 8);
    }
    cfg_write_be(&r, 0x50, 0x80000000u, 0xc);
    negotiate();
}

static inline void put_desc(uint8_t *e, uint64_t at, uint32_t bytes, unsigned flags,
                            unsigned follows)
{
    dxpu_put_le64(e, at);
    dxpu_put_le32(e + 8, bytes);
    dxpu_put_le16(e + 12, flags);
    dxpu_put_le16(e + 14, follows);
}

static inline void notify(unsigned q)
{
    set(VIRTIO_NOTIFY + q * 4, q | (uint32_t)made[q] << 16, 4);
}

static inline void avail_put(unsigned q, uint16_t head)
{
    uint8_t *a = ring_mem(q, AT_AVAIL);
    dxpu_put_le16(a + 4 + 2u * (made[q] % ring_size), head);
    dxpu_put_le16(a + 2, ++made[q]);
}

/* Descriptors of one request: in the ring of a queue, or in a table of their own. */
typedef struct chain {
    uint8_t op;        /* of the step */
    unsigned q, first; /* first: entry of the ring */
    uint8_t *at;
} chain;

static inline chain chain_begin(uint8_t op, unsigned q, unsigned first)
{
    uint8_t *table = r.mem + AT_TABLES + (first & 3) * 0x400u;
    return (chain){ op, q, first, op & 0x20 ? table : ring_mem(q, 0) + first * 16u };
}

static inline void chain_put(const chain *c, unsigned i, uint64_t at, uint32_t bytes,
                             unsigned flags)
{
    unsigned start = c->op & 0x20 ? 0 : c->first;
    put_desc(c->at + i * 16u, at, bytes, flags, start + i + 1);
}

/* Make it available; it has `count` descriptors. */
static inline void chain_give(const chain *c, unsigned count)
{
    if (c->op & 0x20)
        put_desc(ring_mem(c->q, 0) + c->first * 16u, MEM_LOW + (uint64_t)(c->at - r.mem),
                 count * 16u, 4, 0);
    avail_put(c->q, (uint16_t)c->first);
    if (!(c->op & 0x40))
        notify(c->q);
}

#endif /* VIRTIO_RIG_H_INCLUDED */
