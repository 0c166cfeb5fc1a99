/* nvme_driver.h - for tests of the NVMe controller model: what a driver does
   SPDX-License-Identifier: MIT

   Include after nvme_model.h.

   CONTENTS   1 Root complex   2 Driver */
#ifndef NVME_DRIVER_H_INCLUDED
#define NVME_DRIVER_H_INCLUDED

#include "nvme_model.h"

#include "root_complex.h"

/* ==== 1  Root complex ========================================================================= */

enum {
    BAR = 0x20000000,
    BDF = 0x0510, /* 05:02.0 */
    STORE_BYTES = 8 << 20
};

/* All completions of the latest read request, before any other. */
static inline void rc_answer_last(rc *r)
{
    unsigned tag;
    rc_look(r);
    tag = r->last_tag;
    while (r->answers[tag].head)
        rc_answer_tag(r, tag);
    rc_look(r);
}

static inline uint32_t reg32(rc *r, uint32_t offset)
{
    assert_int_equal(mmio_read_status(r, BAR + offset, 4), DXPU_CPL_SC);
    return dxpu_get_le32(r->data);
}

static inline void reg_set32(rc *r, uint32_t offset, uint32_t value)
{
    uint8_t b[4];
    dxpu_put_le32(b, value);
    mmio_write(r, BAR + offset, b, 4);
}

static inline void reg_set64(rc *r, uint32_t offset, uint64_t value)
{
    uint8_t b[8];
    dxpu_put_le64(b, value);
    mmio_write(r, BAR + offset, b, 8);
}

/* ==== 2  Driver =============================================================================== */

enum {                        /* offsets in host memory */
       MEM_QUEUES = 0x100000, /* 64 KB for each submission queue, then the same for completions */
       MEM_LISTS = 0x010000,
       MEM_DATA = 0x400000,
       DEPTH = 64,
       ADMIN_DEPTH = 32,
       QUEUES_USED = 8
};

typedef struct queue_pair {
    uint32_t depth, tail, head;
    uint8_t phase;
} queue_pair;

typedef struct result {
    uint32_t dw0;
    uint16_t sqhd, sqid, cid, status; /* status without phase and More */
} result;

typedef struct driver {
    rc r;
    queue_pair q[QUEUES_USED + 1];
    uint16_t cid;
    char path[32];
} driver;

static inline uint64_t sq_address(unsigned q)
{
    return MEM_LOW + MEM_QUEUES + q * 0x10000u;
}

static inline uint64_t cq_address(unsigned q)
{
    return MEM_LOW + MEM_QUEUES + 0x100000u + q * 0x10000u;
}

/* What firmware and the PCI core do. */
static inline void drv_enumerate(driver *d)
{
    rc *r = &d->r;
    r->bdf = BDF;
    cfg_write(r, 0x10, 0xffffffff);
    cfg_write(r, 0x14, 0xffffffff);
    assert_int_equal(cfg_read(r, 0x10), (uint32_t) ~(NVME_BAR_BYTES - 1) | 4);
    assert_int_equal(cfg_read(r, 0x14), 0xffffffff);
    cfg_write(r, 0x10, BAR);
    cfg_write(r, 0x14, 0);
    cfg_write_be(r, 0x04, 0x0006, 0x3);
}

static inline void drv_msix(driver *d)
{
    rc *r = &d->r;
    for (uint32_t i = 0; i < NVME_VECTORS; i++) {
        reg_set32(r, NVME_TABLE + i * 16, MSI_BASE);
        reg_set32(r, NVME_TABLE + i * 16 + 4, 0);
        reg_set32(r, NVME_TABLE + i * 16 + 8, i);
        reg_set32(r, NVME_TABLE + i * 16 + 12, 0);
    }
    cfg_write_be(r, 0x50, 0x80000000u, 0xc);
}

static inline void queue_restart(queue_pair *q, uint32_t depth)
{
    q->depth = depth;
    q->tail = q->head = 0;
    q->phase = 1;
}

static inline void drv_enable(driver *d)
{
    rc *r = &d->r;
    rc_mem_zero(r, MEM_QUEUES, 0x200000);
    queue_restart(&d->q[0], ADMIN_DEPTH);
    reg_set32(r, 0x24, (ADMIN_DEPTH - 1) << 16 | (ADMIN_DEPTH - 1));
    reg_set64(r, 0x28, sq_address(0));
    reg_set64(r, 0x30, cq_address(0));
    reg_set32(r, 0x14, 4u << 20 | 6u << 16 | 1);
    assert_int_equal(reg32(r, 0x1c), 1);
}

static inline uint8_t *drv_entry(driver *d, unsigned q)
{
    uint8_t *e = rc_mem(&d->r, sq_address(q), 1) + d->q[q].tail * 64u;
    d->q[q].tail = (d->q[q].tail + 1) % d->q[q].depth;
    return e;
}

static inline void drv_ring(driver *d, unsigned q)
{
    reg_set32(&d->r, NVME_DOORBELLS + q * 8, d->q[q].tail);
}

/* Next completion of a queue; false: none. */
static inline bool drv_reap(driver *d, unsigned q, result *out)
{
    queue_pair *p = &d->q[q];
    const uint8_t *e = rc_mem(&d->r, cq_address(q), 1) + p->head * 16u;
    if ((e[14] & 1) != p->phase)
        return false;
    out->dw0 = dxpu_get_le32(e);
    out->sqhd = (uint16_t)dxpu_get_le32(e + 8);
    out->sqid = (uint16_t)(dxpu_get_le32(e + 8) >> 16);
    out->cid = (uint16_t)dxpu_get_le32(e + 12);
    out->status = (uint16_t)(dxpu_get_le32(e + 12) >> 17 & ~(uint32_t)NVME_MORE);
    p->head = (p->head + 1) % p->depth;
    if (!p->head)
        p->phase ^= 1;
    return true;
}

static inline void drv_consumed(driver *d, unsigned q)
{
    reg_set32(&d->r, NVME_DOORBELLS + q * 8 + 4, d->q[q].head);
}

typedef struct sqe {
    uint32_t dw[16];
} sqe;

/* Submit without waiting; its command id. */
static inline uint16_t drv_send(driver *d, unsigned q, const sqe *s)
{
    uint8_t *e = drv_entry(d, q);
    for (unsigned i = 0; i < 16; i++)
        dxpu_put_le32(e + i * 4u, s->dw[i]);
    dxpu_put_le16(e + 2, ++d->cid);
    return d->cid;
}

/* Submit one command and wait. */
static inline result drv_do(driver *d, unsigned q, const sqe *s)
{
    result res;
    uint16_t cid = drv_send(d, q, s);
    drv_ring(d, q);
    rc_run(&d->r);
    assert_true(drv_reap(d, q, &res));
    assert_int_equal(res.cid, cid);
    assert_int_equal(res.sqid, q);
    drv_consumed(d, q);
    return res;
}

static inline sqe command(uint8_t opcode, uint32_t nsid)
{
    sqe s;
    memset(&s, 0, sizeof s);
    s.dw[0] = opcode;
    s.dw[1] = nsid;
    s.dw[6] = MEM_LOW + MEM_DATA;
    return s;
}

static inline uint16_t admin(driver *d, uint8_t opcode, uint32_t nsid, uint32_t dw10, uint32_t dw11)
{
    sqe s = command(opcode, nsid);
    s.dw[10] = dw10;
    s.dw[11] = dw11;
    return drv_do(d, 0, &s).status;
}

static inline uint16_t make_cq(driver *d, unsigned q, uint32_t depth, uint32_t vector)
{
    sqe s = command(0x05, 0);
    s.dw[6] = (uint32_t)cq_address(q);
    s.dw[10] = (depth - 1) << 16 | q;
    s.dw[11] = vector << 16 | 3;
    return drv_do(d, 0, &s).status;
}

static inline uint16_t make_sq(driver *d, unsigned q, uint32_t depth, unsigned cq)
{
    sqe s = command(0x01, 0);
    s.dw[6] = (uint32_t)sq_address(q);
    s.dw[10] = (depth - 1) << 16 | q;
    s.dw[11] = cq << 16 | 1;
    return drv_do(d, 0, &s).status;
}

static inline void drv_queues(driver *d, unsigned count)
{
    for (unsigned q = 1; q <= count; q++) {
        queue_restart(&d->q[q], DEPTH);
        assert_int_equal(make_cq(d, q, DEPTH, q), 0);
        assert_int_equal(make_sq(d, q, DEPTH, q), 0);
    }
}

/* All of these, with the given number of I/O queue pairs. */
static inline void drv_boot(driver *d, unsigned queues)
{
    drv_enumerate(d);
    drv_msix(d);
    drv_enable(d);
    drv_queues(d, queues);
}

static uint64_t drv_mrrs_bytes;   /* Max_Read_Request_Size of the next device */
static uint64_t drv_cmb_bytes;    /* controller memory buffer of the next device */
static const char *drv_subsystem; /* of the next device, with */
static uint64_t drv_controller;   /* this identifier */
static const jobs *drv_jobs;      /* who runs the jobs of the next device; NULL: it does itself */

static inline driver *drv_open_set(const char *file, unsigned namespaces, const char *serial)
{
    device_settings set = { .memory_bytes = STORE_BYTES, .mps_bytes = 512, .identity = 0x20001 };
    driver *d = calloc(1, sizeof *d);
    assert_non_null(d);
    set.file = file;
    set.file_bytes = file ? STORE_BYTES : 0;
    set.namespaces = namespaces;
    set.serial = serial;
    set.subsystem = drv_subsystem;
    set.controller = drv_controller;
    set.jobs = drv_jobs;
    set.cmb_bytes = drv_cmb_bytes;
    set.mrrs_bytes = drv_mrrs_bytes;
    rc_open(&d->r, &nvme_kind, &set, 0);
    d->r.whole_dwords = true;
    return d;
}

static inline driver *drv_open(const char *file)
{
    return drv_open_set(file, 0, NULL);
}

static inline void drv_close(driver *d)
{
    rc_close(&d->r);
    free(d);
}

static inline driver *drv_up_namespaces(unsigned queues, unsigned namespaces)
{
    driver *d = drv_open_set(NULL, namespaces, NULL);
    drv_boot(d, queues);
    return d;
}

static inline driver *drv_up(unsigned queues)
{
    return drv_up_namespaces(queues, 0);
}

static inline nvme *model(driver *d)
{
    return d->r.dev;
}

#endif /* NVME_DRIVER_H_INCLUDED */
