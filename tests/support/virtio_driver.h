/* virtio_driver.h - for tests of virtio devices: a driver that knows only the standard
   SPDX-License-Identifier: MIT

   Numbers are those of Virtual I/O Device 1.2, not of the models' headers.  Include after dxpu.h's
   implementation and cmocka. */
#ifndef VIRTIO_DRIVER_H_INCLUDED
#define VIRTIO_DRIVER_H_INCLUDED

#include "root_complex.h"

enum { BAR = 0x20000000, BDF = 0x0510, VD_QUEUES = 5 /* at most */ };

enum { /* of the common configuration */
       DEVICE_SELECT = 0x00,
       DEVICE_FEATURE = 0x04,
       DRIVER_SELECT = 0x08,
       DRIVER_FEATURE = 0x0c,
       CONFIG_VECTOR = 0x10,
       NUM_QUEUES = 0x12,
       STATUS = 0x14,
       GENERATION = 0x15,
       QUEUE_SELECT = 0x16,
       QUEUE_SIZE = 0x18,
       QUEUE_VECTOR = 0x1a,
       QUEUE_ENABLE = 0x1c,
       QUEUE_NOTIFY_OFF = 0x1e,
       QUEUE_DESC = 0x20,
       QUEUE_DRIVER = 0x28,
       QUEUE_DEVICE = 0x30,
       QUEUE_RESET = 0x3a
};

enum { ACKNOWLEDGE = 1, DRIVER = 2, DRIVER_OK = 4, FEATURES_OK = 8, NEEDS_RESET = 64 };
enum { NEXT = 1, WRITE = 2, INDIRECT = 4 };
#define F_INDIRECT  (1ull << 28)
#define F_EVENT_IDX (1ull << 29)
#define F_VERSION_1 (1ull << 32)
#define F_PLATFORM  (1ull << 33)
#define F_DATA      (1ull << 38)
#define F_RESET     (1ull << 40)

enum {                      /* offsets in host memory */
       AT_RINGS = 0x100000, /* 64 KB for each queue: descriptors, avail ring, used ring */
       AT_AVAIL = 0x4000,
       AT_USED = 0x8000,
       AT_HEADERS = 0x200000,
       AT_TABLES = 0x300000, /* indirect descriptors, 4 KB each */
       AT_DATA = 0x400000
};

typedef struct ring {
    uint16_t size, made, seen; /* entries made available; used ones that were looked at */
} ring;

typedef struct driver {
    rc r;
    uint32_t common, isr, config, notify, stride; /* offsets in the BAR */
    uint64_t features;
    unsigned queues;
    ring q[VD_QUEUES];
    bool quiet; /* it does not ask for interrupts by itself */
} driver;

static inline uint32_t get(driver *d, uint32_t offset, unsigned bytes)
{
    uint64_t at = BAR + offset;
    uint32_t v;
    assert_int_equal(mmio_read_status(&d->r, at, bytes), DXPU_CPL_SC);
    v = dxpu_get_le32(d->r.data) >> 8 * (at & 3);
    return bytes == 4 ? v : v & ((1u << 8 * bytes) - 1);
}

static inline void set(driver *d, uint32_t offset, uint64_t value, unsigned bytes)
{
    uint8_t b[8];
    dxpu_put_le64(b, value);
    mmio_write(&d->r, BAR + offset, b, bytes);
}

static inline uint32_t common(driver *d, uint32_t offset, unsigned bytes)
{
    return get(d, d->common + offset, bytes);
}

static inline void set_common(driver *d, uint32_t offset, uint64_t value, unsigned bytes)
{
    set(d, d->common + offset, value, bytes);
}

static inline uint8_t status(driver *d)
{
    return (uint8_t)common(d, STATUS, 1);
}

/* What the vendor capabilities say, as a driver reads it. */
static inline void drv_find(driver *d)
{
    rc *r = &d->r;
    for (unsigned at = cfg_read(r, 0x34) & 0xff; at; at = cfg_read(r, at) >> 8 & 0xff) {
        uint32_t head = cfg_read(r, at), offset = cfg_read(r, at + 8);
        if ((head & 0xff) != 9)
            continue;
        switch (head >> 24) {
        case 1:
            d->common = offset;
            break;
        case 2:
            d->notify = offset;
            d->stride = cfg_read(r, at + 16);
            break;
        case 3:
            d->isr = offset;
            break;
        case 4:
            d->config = offset;
            break;
        default:
            break;
        }
    }
}

static inline void drv_enumerate(driver *d)
{
    rc *r = &d->r;
    r->bdf = BDF;
    cfg_write(r, 0x10, BAR);
    cfg_write(r, 0x14, 0);
    cfg_write_be(r, 0x04, 0x0006, 0x3);
    drv_find(d);
}

static inline void drv_msix(driver *d)
{
    rc *r = &d->r;
    uint32_t table = cfg_read(r, 0x54) & ~7u;
    for (uint32_t i = 0; i <= d->queues; i++) {
        set(d, table + i * 16, MSI_BASE, 4);
        set(d, table + i * 16 + 4, 0, 4);
        set(d, table + i * 16 + 8, i, 4);
        set(d, table + i * 16 + 12, 0, 4);
    }
    cfg_write_be(r, 0x50, 0x80000000u, 0xc);
}

static inline uint64_t offered(driver *d)
{
    uint64_t low;
    set_common(d, DEVICE_SELECT, 0, 4);
    low = common(d, DEVICE_FEATURE, 4);
    set_common(d, DEVICE_SELECT, 1, 4);
    return low | (uint64_t)common(d, DEVICE_FEATURE, 4) << 32;
}

/* True when the device accepts them. */
static inline bool negotiate(driver *d, uint64_t features)
{
    set_common(d, STATUS, 0, 1);
    assert_int_equal(status(d), 0);
    set_common(d, STATUS, ACKNOWLEDGE, 1);
    set_common(d, STATUS, ACKNOWLEDGE | DRIVER, 1);
    for (uint32_t i = 0; i < 2; i++) {
        set_common(d, DRIVER_SELECT, i, 4);
        set_common(d, DRIVER_FEATURE, (uint32_t)(features >> 32 * i), 4);
    }
    set_common(d, STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK, 1);
    d->features = features;
    return status(d) & FEATURES_OK;
}

static inline uint64_t ring_at(unsigned q, uint32_t part)
{
    return MEM_LOW + AT_RINGS + q * 0x10000u + part;
}

static inline uint8_t *ring_mem(driver *d, unsigned q, uint32_t part)
{
    return rc_mem(&d->r, ring_at(q, part), 1);
}

static inline void make_queue(driver *d, unsigned q, uint16_t size)
{
    memset(ring_mem(d, q, 0), 0, 0x10000);
    d->q[q] = (ring){ size, 0, 0 };
    set_common(d, QUEUE_SELECT, q, 2);
    assert_int_equal(common(d, QUEUE_ENABLE, 2), 0);
    set_common(d, QUEUE_SIZE, size, 2);
    set_common(d, QUEUE_VECTOR, q + 1, 2);
    assert_int_equal(common(d, QUEUE_VECTOR, 2), q + 1);
    set_common(d, QUEUE_DESC, ring_at(q, 0), 8);
    set_common(d, QUEUE_DRIVER, ring_at(q, AT_AVAIL), 8);
    set_common(d, QUEUE_DEVICE, ring_at(q, AT_USED), 8);
    set_common(d, QUEUE_ENABLE, 1, 2);
}

static inline void drv_start(driver *d, uint64_t features, uint16_t size)
{
    assert_true(negotiate(d, features));
    set_common(d, CONFIG_VECTOR, 0, 2);
    for (unsigned q = 0; q < d->queues; q++)
        make_queue(d, q, size);
    set_common(d, STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK, 1);
    rc_run(&d->r);
}

static inline void put_desc(uint8_t *table, unsigned i, uint64_t at, uint32_t bytes, unsigned flags,
                            unsigned next)
{
    uint8_t *e = table + i * 16u;
    dxpu_put_le64(e, at);
    dxpu_put_le32(e + 8, bytes);
    dxpu_put_le16(e + 12, flags);
    dxpu_put_le16(e + 14, next);
}

static inline void avail_put(driver *d, unsigned q, uint16_t head)
{
    ring *g = &d->q[q];
    uint8_t *a = ring_mem(d, q, AT_AVAIL);
    dxpu_put_le16(a + 4 + 2u * (g->made % g->size), head);
    dxpu_put_le16(a + 2, ++g->made);
}

static inline void notify(driver *d, unsigned q)
{
    if (d->features & F_DATA)
        set(d, d->notify + q * d->stride, q | (uint32_t)d->q[q].made << 16, 4);
    else
        set(d, d->notify + q * d->stride, q, 2);
}

static inline uint16_t used_index(driver *d, unsigned q)
{
    return dxpu_get_le16(ring_mem(d, q, AT_USED) + 2);
}

/* The next used entry: its head and length; false: none. */
static inline bool reap(driver *d, unsigned q, uint32_t *head, uint32_t *len)
{
    ring *g = &d->q[q];
    const uint8_t *e = ring_mem(d, q, AT_USED) + 4 + 8u * (g->seen % g->size);
    if (used_index(d, q) == g->seen)
        return false;
    *head = dxpu_get_le32(e);
    *len = dxpu_get_le32(e + 4);
    g->seen++;
    return true;
}

/* Answer all reads that the device has sent, but none that follow from that. */
static inline void answer_round(driver *d)
{
    for (unsigned waiting = d->r.answers_waiting; waiting; waiting--)
        (void)rc_answer_one(&d->r);
    rc_look(&d->r);
}

static inline void fill(uint8_t *p, uint32_t bytes, unsigned seed)
{
    for (uint32_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
}

/* A device of this kind, enumerated, with MSI-X. */
static inline driver *drv_create(const device_kind *kind, const device_settings *s, unsigned queues)
{
    driver *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->queues = queues;
    rc_open(&d->r, kind, s, 0);
    drv_enumerate(d);
    drv_msix(d);
    return d;
}

/* The kinds of reset that a device has. */
typedef enum reset_kind { DEVICE_RESET, FUNCTION_RESET, HOT_RESET, POWER_RESET, RESETS } reset_kind;

/* A reset; after all but the device's own it is enumerated again. */
static inline void drv_reset(driver *d, reset_kind how)
{
    dxpu_event e = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
    rc *r = &d->r;
    if (how == DEVICE_RESET) {
        set_common(d, STATUS, 0, 1);
        rc_run(r);
        return;
    }
    if (how == FUNCTION_RESET) {
        cfg_write(r, 0x68, 1u << 15 | cfg_read(r, 0x68));
    } else if (how == HOT_RESET) {
        r->kind->event(r->dev, &e);
        rc_forget(r);
    } else {
        r->kind->reset(r->dev);
        rc_forget(r);
    }
    rc_run(r);
    drv_enumerate(d);
    drv_msix(d);
}

static inline void drv_close(driver *d)
{
    rc_close(&d->r);
    free(d);
}

#endif /* VIRTIO_DRIVER_H_INCLUDED */
