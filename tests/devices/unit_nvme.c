/* unit_nvme.c - the NVMe controller model under a small root complex that does what a driver does
   SPDX-License-Identifier: MIT

   CONTENTS   3 Configuration space   4 Registers
              5 Admin commands   6 Reading and writing   7 Namespaces
              8 Errors   9 Events, aborts, interrupts   10 Resets   11 Accesses under way
              12 The layout   13 A sync that failed   14 The controller memory buffer
              15 Push rules   16 Fuzz */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "function.h"
#include "nvme.h"
#include "nvme_model.h"
#include "durable.h"
#include "pci.h"

/* The store's system calls, counted, and failing when set to. */
static unsigned sync_count;
static bool disk_fails;
static int sync_errors; /* that many next syncs fail, with sync_error; those behind them do not */
static int sync_error = EIO;
static void (*syncing)(unsigned number);

static void remove_disk(const char *path)
{
    char layout[80];
    snprintf(layout, sizeof layout, "%s.layout", path);
    (void)unlink(path);
    (void)unlink(layout);
}

static void (*beside_read)(void), (*beside_write)(void); /* while it is under way */

static ssize_t test_pread(int fd, void *to, size_t len, off_t at)
{
    if (beside_read)
        beside_read();
    return disk_fails ? -1 : pread(fd, to, len, at);
}

static ssize_t test_pwrite(int fd, const void *from, size_t len, off_t at)
{
    if (beside_write)
        beside_write();
    return disk_fails ? -1 : pwrite(fd, from, len, at);
}

static ssize_t test_preadv2(int fd, const struct iovec *to, int count, off_t at, int flags)
{
    return disk_fails ? -1 : preadv2(fd, to, count, at, flags);
}

static int test_fdatasync(int fd)
{
    bool fails = disk_fails || sync_errors > 0;
    sync_errors -= sync_errors > 0;
    sync_count++;
    if (syncing)
        syncing(sync_count);
    errno = disk_fails ? EIO : sync_error;
    return fails ? -1 : fdatasync(fd);
}

/* Not linked: replaces pread() and others. */
#define pread     test_pread
#define pwrite    test_pwrite
#define preadv2   test_preadv2
#define fdatasync test_fdatasync
#include "block_store.c"
#undef pread
#undef pwrite
#undef preadv2
#undef fdatasync

#include "root_complex.h"
#include "nvme_driver.h"
#include "push_host.h"

/* ==== 3  Configuration space ================================================================== */

static void test_config_identity(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    unsigned at, found = 0;
    (void)state;
    assert_int_equal(cfg_read(r, 0x00), 0x10f11af4);
    assert_int_equal(cfg_read(r, 0x08) >> 8, 0x010802);
    assert_int_equal(cfg_read(r, 0x0c) >> 16 & 0xff, 0); /* type 0, one function */
    assert_true(cfg_read(r, 0x04) & 0x00100000);
    for (at = cfg_read(r, 0x34) & 0xff; at; at = cfg_read(r, at) >> 8 & 0xff) {
        uint32_t id = cfg_read(r, at) & 0xff;
        found |= id == 0x01 ? 1u : id == 0x11 ? 2u : id == 0x10 ? 4u : 8u;
    }
    assert_int_equal(found, 7);
    assert_int_equal(cfg_read(r, 0x100), 0x14820001); /* Advanced Error Reporting */
    assert_int_equal(cfg_read(r, 0x148), 0x00010003); /* Device Serial Number */
    assert_int_equal(cfg_read(r, 0x14c), 0x20001);
    assert_int_equal(cfg_read(r, 0x154), 0);
    drv_close(d);
}

/* The completer is 00:00.0 until a configuration write sets it; a read does not. */
static void test_config_captures_its_number(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    (void)state;
    r->bdf = BDF;
    (void)cfg_read(r, 0);
    assert_int_equal(r->cpl.completer, 0);
    cfg_write(r, 0x3c, 7);
    assert_int_equal(r->cpl.completer, BDF);
    (void)cfg_read(r, 0);
    assert_int_equal(r->cpl.completer, BDF);
    r->bdf = 0x0800;
    cfg_write(r, 0x3c, 9);
    assert_int_equal(r->cpl.completer, 0x0800);
    assert_int_equal(cfg_read(r, 0x3c), 9);
    drv_close(d);
}

static void test_config_masks(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    (void)state;
    r->bdf = BDF;
    cfg_write(r, 0x00, 0xffffffff);
    assert_int_equal(cfg_read(r, 0x00), 0x10f11af4);
    cfg_write(r, 0x04, 0xffffffff);
    assert_int_equal(cfg_read(r, 0x04), 0x00100546);
    cfg_write_be(r, 0x04, 0, 0x2); /* the upper byte of Command alone */
    assert_int_equal(cfg_read(r, 0x04), 0x00100046);
    cfg_write_be(r, 0x14, 0xaabbccdd, 0x5);
    assert_int_equal(cfg_read(r, 0x14), 0x00bb00dd);
    cfg_write(r, 0x44, 0x3);
    assert_int_equal(cfg_read(r, 0x44), 0xb);
    cfg_write(r, 0x44, 0x1); /* D1 is not there: still D3 */
    assert_int_equal(cfg_read(r, 0x44), 0xb);
    cfg_write(r, 0x88, 0xffffffff);
    assert_int_equal(cfg_read(r, 0x88), 0x1f);
    drv_close(d);
}

static void test_config_refuses(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    dxpu_tlp t;
    (void)state;
    r->bdf = BDF;
    t = cfg_tlp(r, DXPU_TLP_CFGRD1, 0);
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_UR);
    t = cfg_tlp(r, DXPU_TLP_CFGRD0, 0);
    t.target = BDF | 3; /* another function */
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_UR);
    assert_int_equal(cfg_read(r, 0x68) >> 16, 0x9); /* Unsupported Request, correctable */
    cfg_write(r, 0x68, 0x00080000);
    assert_int_equal(cfg_read(r, 0x68) >> 16, 0x1); /* the one that was written is gone */
    t.target = BDF;
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_SC);
    drv_close(d);
}

/* ==== 4  Registers ============================================================================ */

static void test_memory_space(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    uint8_t b[4] = { 0 };
    (void)state;
    drv_enumerate(d);
    assert_int_equal(reg32(r, 0x08), 0x00010400);
    assert_int_equal(mmio_read_status(r, BAR - 4, 4), DXPU_CPL_UR);
    assert_int_equal(mmio_read_status(r, BAR + NVME_BAR_BYTES, 4), DXPU_CPL_UR);
    assert_int_equal(model(d)->fn.count.posted_dropped, 0);
    mmio_write(r, BAR + NVME_BAR_BYTES, b, 4);
    assert_int_equal(model(d)->fn.count.posted_dropped, 1);
    cfg_write_be(r, 0x04, 0x0004, 0x3);
    assert_int_equal(mmio_read_status(r, BAR + 8, 4), DXPU_CPL_UR);
    cfg_write_be(r, 0x04, 0x0006, 0x3);
    assert_int_equal(mmio_read_status(r, BAR + 8, 4), DXPU_CPL_SC);
    cfg_write(r, 0x44, 3); /* D3hot answers configuration only */
    assert_int_equal(mmio_read_status(r, BAR + 8, 4), DXPU_CPL_UR);
    drv_close(d);
}

static void test_bar_above_4g(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    (void)state;
    drv_enumerate(d);
    cfg_write(r, 0x14, 0x12);
    assert_int_equal(mmio_read_status(r, BAR + 8, 4), DXPU_CPL_UR);
    assert_int_equal(mmio_read_status(r, 0x1200000000u + BAR + 8, 4), DXPU_CPL_SC);
    assert_int_equal(dxpu_get_le32(r->data), 0x00010400);
    drv_close(d);
}

static void test_register_sizes(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    uint8_t b[8] = { 0x12, 0x34, 0x56, 0x78, 0x9a, 0, 0, 0 };
    (void)state;
    drv_enumerate(d);
    assert_int_equal(mmio_read_status(r, BAR, 8), DXPU_CPL_SC);
    assert_int_equal(r->data_len, 8);
    assert_int_equal(dxpu_get_le64(r->data), 0x20140103ffu);
    assert_int_equal(mmio_read_status(r, BAR + 9, 2), DXPU_CPL_SC); /* two bytes of VS */
    assert_int_equal(r->cpl.byte_count, 2);
    assert_int_equal(dxpu_get_le16(r->data + 1), 0x0104);
    assert_int_equal(mmio_read_status(r, BAR + 8, 0), DXPU_CPL_SC); /* a flush */
    assert_int_equal(r->cpl.byte_count, 1);
    mmio_write(r, BAR + 0x2a, b, 5); /* bytes 2..6 of ASQ */
    assert_int_equal(reg32(r, 0x28), 0x34120000);
    assert_int_equal(reg32(r, 0x2c), 0x009a7856);
    assert_int_equal(mmio_read_status(r, BAR + 0x10, 4096 - 0x10), DXPU_CPL_SC);
    assert_int_equal(r->data_len, 4096 - 0x10);
    assert_true(r->cpl_count >= 4096 / 128);
    drv_close(d);
}

static void test_unsupported_requests(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    uint8_t b[8] = { 0 };
    dxpu_tlp t;
    (void)state;
    drv_enumerate(d);
    t = rc_request(r, DXPU_TLP_FETCHADD, BAR + 0x28, 8);
    t.first_be = t.last_be = 0;
    t.payload.ptr = b;
    t.payload.len = 8;
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_UR);
    t = rc_request(r, DXPU_TLP_IORD, 0x100, 4);
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_UR);
    t = rc_request(r, DXPU_TLP_MRDLK, BAR, 4);
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_UR);
    t = rc_request(r, DXPU_TLP_MRD, BAR, 4);
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_SC);
    drv_close(d);
}

static void test_enable_checks(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    (void)state;
    drv_enumerate(d);
    reg_set32(r, 0x14, 1); /* AQA is 0: queues of one entry */
    assert_int_equal(reg32(r, 0x1c), 2);
    reg_set32(r, 0x14, 0);
    assert_int_equal(reg32(r, 0x1c), 0);
    reg_set32(r, 0x24, 0x001f001f);
    reg_set32(r, 0x14, 1 | 1 << 7); /* pages of 8 KB */
    assert_int_equal(reg32(r, 0x1c), 2);
    reg_set32(r, 0x14, 0);
    drv_enable(d);
    reg_set32(r, 0x14, reg32(r, 0x14) | 1 << 14); /* shutdown */
    assert_int_equal(reg32(r, 0x1c), 1 | 2 << 2);
    reg_set32(r, 0x14, 0);
    assert_int_equal(reg32(r, 0x1c), 0);
    assert_int_equal(reg32(r, 0x24), 0x001f001f); /* outlives a controller reset */
    drv_close(d);
}

/* ==== 5  Admin commands ======================================================================= */

static uint16_t identify(driver *d, uint32_t what, uint32_t nsid)
{
    memset(d->r.mem + MEM_DATA, 0xee, 4096);
    return admin(d, 0x06, nsid, what, 0);
}

static void test_identify(void **state)
{
    driver *d = drv_up(0);
    const uint8_t *p = d->r.mem + MEM_DATA;
    (void)state;
    assert_int_equal(identify(d, 1, 0), 0);
    assert_int_equal(dxpu_get_le32(p), 0x1af41af4);
    assert_memory_equal(p + 4, "DXPU0000000000020001", 20);
    assert_int_equal(p[77], 8);
    assert_int_equal(dxpu_get_le32(p + 80), 0x00010400);
    assert_int_equal(dxpu_get_le32(p + 516), 1);
    assert_memory_equal(p + 768, "nqn.2014-08.org.nvmexpress:uuid:", 32);
    assert_int_equal(strlen((const char *)p + 768), 32 + 36);
    assert_int_equal(identify(d, 0, 1), 0);
    assert_int_equal(dxpu_get_le64(p), STORE_BYTES / 512);
    assert_int_equal(p[26], 0);
    assert_int_equal(dxpu_get_le32(p + 128), 9u << 16);
    assert_int_equal(identify(d, 2, 0), 0);
    assert_int_equal(dxpu_get_le32(p), 1);
    assert_int_equal(dxpu_get_le32(p + 4), 0);
    assert_int_equal(identify(d, 2, 1), 0);
    assert_int_equal(dxpu_get_le32(p), 0);
    assert_int_equal(identify(d, 3, 1), 0);
    assert_int_equal(p[0], 3);
    assert_int_equal(p[1], 16);
    assert_int_equal(p[20], 0);
    assert_int_equal(identify(d, 0, 2), NVME_INVALID_NAMESPACE | NVME_DNR);
    assert_int_equal(identify(d, 2, 0xffffffff), NVME_INVALID_NAMESPACE | NVME_DNR);
    assert_int_equal(identify(d, 0x1f, 0), NVME_INVALID_FIELD | NVME_DNR);
    drv_close(d);
}

static void test_queue_errors(void **state)
{
    driver *d = drv_up(1);
    (void)state;
    assert_int_equal(make_cq(d, 1, 16, 0), NVME_INVALID_QUEUE | NVME_DNR); /* is there */
    assert_int_equal(make_cq(d, 0, 16, 0), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(make_cq(d, NVME_QUEUES, 16, 0), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(make_cq(d, 2, 1, 0), NVME_QUEUE_SIZE | NVME_DNR);
    assert_int_equal(make_cq(d, 2, 1025, 0), NVME_QUEUE_SIZE | NVME_DNR);
    assert_int_equal(make_cq(d, 2, 16, NVME_VECTORS), NVME_INVALID_VECTOR | NVME_DNR);
    assert_int_equal(admin(d, 0x05, 0, 15u << 16 | 2, 2), NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(make_sq(d, 1, 16, 1), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(make_sq(d, 2, 16, 0), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(make_sq(d, 2, 16, NVME_QUEUES), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(make_sq(d, 2, 16, 2), NVME_CQ_INVALID | NVME_DNR);
    assert_int_equal(make_sq(d, 2, 1, 1), NVME_QUEUE_SIZE | NVME_DNR);
    assert_int_equal(admin(d, 0x04, 0, 1, 0), NVME_QUEUE_DELETION | NVME_DNR);
    assert_int_equal(admin(d, 0x04, 0, 2, 0), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(admin(d, 0x00, 0, 0, 0), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(admin(d, 0x00, 0, 2, 0), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(admin(d, 0x00, 0, 1, 0), 0);
    assert_int_equal(admin(d, 0x04, 0, 1, 0), 0);
    assert_int_equal(make_cq(d, 1, 1024, 0), 0);
    assert_int_equal(make_sq(d, 1, 1024, 1), 0);
    drv_close(d);
}

/* As many as it says, and no more. */
static void test_queue_pairs(void **state)
{
    driver *d = drv_up(0);
    (void)state;
    for (unsigned q = 1; q <= 65; q++) {
        sqe cq = command(0x05, 0), sq = command(0x01, 0);
        uint16_t status = q <= 64 ? 0 : NVME_INVALID_QUEUE | NVME_DNR;
        cq.dw[10] = sq.dw[10] = 15u << 16 | q;
        cq.dw[11] = (q < 64 ? q : 0) << 16 | 3;
        sq.dw[11] = q << 16 | 1;
        assert_int_equal(drv_do(d, 0, &cq).status, status);
        assert_int_equal(drv_do(d, 0, &sq).status, status);
    }
    drv_close(d);
}

static void test_queue_base_alignment(void **state)
{
    driver *d = drv_up(0);
    sqe s = command(0x05, 0);
    (void)state;
    s.dw[6] = (uint32_t)cq_address(1) + 16;
    s.dw[10] = 15u << 16 | 1;
    s.dw[11] = 1;
    assert_int_equal(drv_do(d, 0, &s).status, NVME_PRP_OFFSET | NVME_DNR);
    s.dw[6] = (uint32_t)cq_address(1);
    assert_int_equal(drv_do(d, 0, &s).status, 0);
    drv_close(d);
}

static result feature(driver *d, bool set, uint32_t dw10, uint32_t dw11, uint32_t nsid)
{
    sqe s = command(set ? 0x09 : 0x0a, nsid);
    s.dw[10] = dw10;
    s.dw[11] = dw11;
    return drv_do(d, 0, &s);
}

static void test_features(void **state)
{
    driver *d = drv_up(0);
    (void)state;
    assert_int_equal(feature(d, true, 7, 15u << 16 | 15, 0).dw0, 63u << 16 | 63);
    assert_int_equal(feature(d, true, 7, 0xffff, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(feature(d, false, 6, 0, 0).dw0, 1);
    assert_int_equal(feature(d, true, 6, 0, 0).status, 0);
    assert_int_equal(feature(d, false, 6, 0, 0).dw0, 0);
    assert_int_equal(feature(d, false, 6 | 1 << 8, 0, 0).dw0, 1); /* the default */
    assert_int_equal(feature(d, false, 6 | 3 << 8, 0, 0).dw0, 4); /* changeable */
    assert_int_equal(feature(d, false, 6 | 4 << 8, 0, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(feature(d, true, 6 | 1u << 31, 0, 0).status, NVME_NOT_SAVEABLE | NVME_DNR);
    assert_int_equal(feature(d, true, 6, 1, 1).status, NVME_NOT_PER_NAMESPACE | NVME_DNR);
    assert_int_equal(feature(d, true, 0x7f, 0, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(feature(d, false, 0, 0, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(feature(d, true, 2, 1, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(feature(d, true, 9, 0x10003, 0).status, 0);
    assert_int_equal(feature(d, false, 9, 3, 0).dw0, 0x10003);
    assert_int_equal(feature(d, false, 9, NVME_VECTORS, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(feature(d, true, 5, 7, 2).status, NVME_INVALID_NAMESPACE | NVME_DNR);
    assert_int_equal(feature(d, true, 5, 7, 1).status, 0);
    assert_int_equal(feature(d, false, 5, 0, 1).dw0, 7);
    assert_int_equal(feature(d, false, 4, 0, 0).dw0, 343);
    assert_int_equal(feature(d, false, 5 | 3 << 8, 0, 1).dw0, 6); /* of a namespace */
    assert_int_equal(feature(d, false, 5, 0, 2).status, NVME_INVALID_NAMESPACE | NVME_DNR);
    for (uint32_t id = 1; id < 0x10; id++) { /* each has a default, which it has now or again */
        uint32_t dw11 = id == 9 ? 5 : 0, nsid = id == 5;
        bool known = id != 3 && id < 12;
        result now = feature(d, false, id, dw11, nsid), def;
        def = feature(d, false, id | 1 << 8, dw11, nsid);
        assert_int_equal(def.status, known ? 0 : NVME_INVALID_FIELD | NVME_DNR);
        assert_true(now.dw0 == def.dw0 || id == 5 || id == 6);
        def = feature(d, false, id | 2 << 8, dw11, nsid); /* nothing is saved */
        assert_int_equal(def.status, known ? 0 : NVME_INVALID_FIELD | NVME_DNR);
    }
    assert_int_equal(feature(d, true, 6, 2, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(feature(d, true, 4, 320 | 0xfu << 16, 0).status, 0); /* all sensors */
    assert_int_equal(feature(d, false, 4, 0, 0).dw0, 320);
    assert_int_equal(feature(d, true, 4, 1u << 16, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    drv_queues(d, 1);
    assert_int_equal(feature(d, true, 7, 0, 0).status, NVME_SEQUENCE_ERROR | NVME_DNR);
    drv_close(d);
}

static void test_logs(void **state)
{
    driver *d = drv_up(0);
    const uint8_t *p = d->r.mem + MEM_DATA;
    (void)state;
    assert_int_equal(admin(d, 0x7f, 0, 0, 0), NVME_INVALID_OPCODE | NVME_DNR);
    assert_int_equal(admin(d, 0x02, 0xffffffff, 1 | 31u << 16, 0), 0); /* two entries */
    assert_int_equal(dxpu_get_le64(p), 1);
    assert_int_equal(dxpu_get_le16(p + 12) >> 1, NVME_INVALID_OPCODE | NVME_DNR | NVME_MORE);
    assert_int_equal(dxpu_get_le64(p + 64), 0);
    assert_int_equal(admin(d, 0x02, 0, 2 | 127u << 16, 0), 0);
    assert_int_equal(p[0], 0);
    assert_int_equal(dxpu_get_le16(p + 1), 313);
    assert_int_equal(dxpu_get_le64(p + 176), 1);
    assert_int_equal(admin(d, 0x02, 0, 3 | 127u << 16, 0), 0);
    assert_int_equal(p[0], 1);
    assert_int_equal(admin(d, 0x02, 0, 5 | 1023u << 16, 0), 0);
    assert_int_equal(dxpu_get_le32(p + 6 * 4), 1);
    assert_int_equal(dxpu_get_le32(p + 1024 + 4), 3);
    assert_int_equal(dxpu_get_le32(p + 0x10 * 4), 0);
    assert_int_equal(dxpu_get_le32(p + 0x80 * 4), 0x20007);
    assert_int_equal(dxpu_get_le32(p + 1024 + 0x0c * 4), 1);
    assert_int_equal(admin(d, 0x02, 0, 0x77, 0), NVME_INVALID_LOG | NVME_DNR);
    assert_int_equal(admin(d, 0x02, 1, 2 | 127u << 16, 0), NVME_INVALID_FIELD | NVME_DNR);
    drv_close(d);
}

/* What the health log counts is what happened. */
static void test_health_counts(void **state)
{
    driver *d = drv_up(1);
    const uint8_t *p = d->r.mem + MEM_DATA;
    sqe s = command(2, 1);
    (void)state;
    nvme_kind.tick(d->r.dev, 1);
    s.dw[12] = 7;
    s.dw[8] = s.dw[6] + 4096;
    for (unsigned i = 0; i < 300; i++)
        assert_int_equal(drv_do(d, 1, &s).status, 0);
    s.dw[0] = 1;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    s.dw[0] = 5;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    nvme_kind.tick(d->r.dev, 7200000000001u);
    assert_int_equal(admin(d, 0x02, 0, 2 | 127u << 16, 0), 0);
    assert_int_equal(dxpu_get_le64(p + 32), 3); /* thousands of 512 bytes: 301 times 8 of them */
    assert_int_equal(dxpu_get_le64(p + 48), 1);
    assert_int_equal(dxpu_get_le64(p + 64), 301); /* Compare reads */
    assert_int_equal(dxpu_get_le64(p + 80), 1);
    assert_int_equal(dxpu_get_le64(p + 96), 0);
    assert_int_equal(dxpu_get_le64(p + 112), 1);
    assert_int_equal(dxpu_get_le64(p + 128), 2);
    assert_int_equal(dxpu_get_le64(p + 144), 0);
    reg_set32(&d->r, 0x14, reg32(&d->r, 0x14) | 1 << 14); /* an orderly end, and one without */
    nvme_kind.reset(d->r.dev);
    assert_int_equal(model(d)->unsafe_shutdowns, 0);
    drv_enumerate(d);
    drv_enable(d);
    nvme_kind.reset(d->r.dev);
    assert_int_equal(model(d)->unsafe_shutdowns, 1);
    assert_int_equal(model(d)->reads, 0); /* is not the next user's business */
    drv_close(d);
}

static void test_serial(void **state)
{
    driver *d = drv_open_set(NULL, 0, "SHELF-7");
    const uint8_t *p = d->r.mem + MEM_DATA;
    (void)state;
    drv_enumerate(d);
    drv_enable(d);
    assert_int_equal(identify(d, 1, 0), 0);
    assert_memory_equal(p + 4, "SHELF-7             ", 20);
    drv_close(d);
}

static void test_firmware_and_others_are_not_there(void **state)
{
    static const uint8_t opcodes[] = { 0x10, 0x11, 0x14, 0x18, 0x19, 0x81, 0x84, 0xc0, 0xff };
    driver *d = drv_up(0);
    (void)state;
    for (unsigned i = 0; i < sizeof opcodes; i++)
        assert_int_equal(admin(d, opcodes[i], 0, 0, 0), NVME_INVALID_OPCODE | NVME_DNR);
    drv_close(d);
}

/* ==== 6  Reading and writing ================================================================== */

enum { DATA_PAGES = (MEM_BYTES - MEM_DATA) / 4096 };

/* Pages for `bytes` from `offset` in the first, scattered; their PRPs, lists included, in *s. */
static void scatter(driver *d, sqe *s, uint32_t bytes, uint32_t offset, uint64_t prp[NVME_PAGES])
{
    rc *r = &d->r;
    uint32_t count = (offset + bytes + 4095) / 4096, first = rnd(r) % DATA_PAGES;
    uint32_t list = MEM_LISTS + (rnd(r) % 16) * 0x2000 + (rnd(r) & 1 ? 8 * (rnd(r) % 512) : 0);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t base = rnd(r) & 1 ? MEM_HIGH : MEM_LOW;
        prp[i] = base + MEM_DATA + (first + i * 131u) % DATA_PAGES * 4096u;
    }
    s->dw[6] = (uint32_t)prp[0] + offset;
    s->dw[7] = (uint32_t)(prp[0] >> 32);
    s->dw[8] = (uint32_t)(count == 2 ? prp[1] : MEM_LOW + list);
    s->dw[9] = (uint32_t)(count == 2 ? prp[1] >> 32 : 0);
    for (uint32_t i = 1; count > 2 && i < count; i++) {
        if (list % 4096 == 4088 && i + 1 < count) { /* the list goes on elsewhere */
            uint32_t more = MEM_LISTS + 0x40000 + (list / 4096 % 32) * 4096;
            dxpu_put_le64(r->mem + list, MEM_LOW + more);
            list = more;
        }
        dxpu_put_le64(r->mem + list, prp[i]);
        list += 8;
    }
    prp[0] += offset;
}

static void host_copy(driver *d, const uint64_t *prp, uint8_t *data, uint32_t bytes, bool out)
{
    uint32_t at = 0;
    for (uint32_t i = 0; at < bytes; i++) {
        uint32_t part = 4096 - (uint32_t)(prp[i] & 4095);
        uint8_t *p;
        part = part < bytes - at ? part : bytes - at;
        p = rc_mem(&d->r, prp[i], part);
        assert_non_null(p);
        memcpy(out ? p : data + at, out ? data + at : p, part);
        at += part;
    }
}

static sqe io(uint8_t opcode, uint64_t lba, uint32_t blocks)
{
    sqe s = command(opcode, 1);
    s.dw[10] = (uint32_t)lba;
    s.dw[11] = (uint32_t)(lba >> 32);
    s.dw[12] = blocks - 1;
    return s;
}

static uint16_t move(driver *d, bool write, uint64_t lba, uint32_t bytes, uint32_t offset,
                     uint8_t *data)
{
    uint64_t prp[NVME_PAGES];
    sqe s = io(write ? 1 : 2, lba, bytes / 512);
    uint16_t status;
    scatter(d, &s, bytes, offset, prp);
    if (write)
        host_copy(d, prp, data, bytes, true);
    status = drv_do(d, 1, &s).status;
    if (!write)
        host_copy(d, prp, data, bytes, false);
    return status;
}

static void pattern(driver *d, uint8_t *data, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)rnd(&d->r);
}

static void try_sizes(driver *d)
{
    static const uint32_t offsets[] = { 0, 4, 512, 2044, 4092 };
    uint8_t *in = malloc(NVME_TRANSFER_BYTES), *out = malloc(NVME_TRANSFER_BYTES);
    assert_non_null(in);
    assert_non_null(out);
    for (uint32_t bytes = 512; bytes <= NVME_TRANSFER_BYTES;
         bytes = bytes * 3 / 2 / 512 * 512 + 512) {
        uint32_t size = bytes, offset = offsets[bytes / 512 % 5];
        uint64_t lba = rnd(&d->r) % (STORE_BYTES / 512 - size / 512);
        pattern(d, out, size);
        assert_int_equal(move(d, true, lba, size, offset, out), 0);
        assert_int_equal(move(d, false, lba, size, offset, in), 0);
        assert_memory_equal(in, out, size);
    }
    pattern(d, out, NVME_TRANSFER_BYTES);
    assert_int_equal(move(d, true, 3, NVME_TRANSFER_BYTES, 4092, out), 0);
    assert_int_equal(move(d, false, 3, NVME_TRANSFER_BYTES, 256, in), 0);
    assert_memory_equal(in, out, NVME_TRANSFER_BYTES);
    free(in);
    free(out);
}

/* What firmware would have programmed is there after every reset; software may change it. */
static void test_read_request_size(void **state)
{
    static const struct {
        uint64_t set;
        uint32_t bytes;
    } rows[] = { { 0, 512 }, { 128, 128 }, { 1024, 1024 }, { 4096, 4096 } };
    uint8_t data[4096] = { 1 };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        driver *d;
        unsigned reads;
        drv_mrrs_bytes = rows[i].set;
        d = drv_up(1);
        drv_mrrs_bytes = 0;
        assert_int_equal(128u << (cfg_read(&d->r, 0x68) >> 12 & 7), rows[i].bytes);
        d->r.mrrs = rows[i].bytes;
        reads = d->r.reads;
        assert_int_equal(move(d, true, 0, sizeof data, 0, data), 0);
        assert_int_equal(d->r.reads - reads, 1 + sizeof data / rows[i].bytes);
        cfg_write_be(&d->r, 0x68, 0x1000, 0x3);
        d->r.mrrs = 256;
        reads = d->r.reads;
        assert_int_equal(move(d, true, 0, sizeof data, 0, data), 0);
        assert_int_equal(d->r.reads - reads, 1 + sizeof data / 256);
        cfg_write_be(&d->r, 0x68, 0x8000, 0x3);
        assert_int_equal(128u << (cfg_read(&d->r, 0x68) >> 12 & 7), rows[i].bytes);
        drv_close(d);
    }
}

static void test_io_all_sizes(void **state)
{
    driver *d = drv_up(1);
    (void)state;
    try_sizes(d);
    assert_int_equal(d->r.most_in_flight, 32); /* all tags were used, and no more */
    drv_close(d);
}

/* Payload, request size and tags as programmed. */
static void test_io_device_control(void **state)
{
    driver *d = drv_up(1);
    (void)state;
    for (unsigned code = 0; code < 6; code++) {
        d->r.mps = 128u << (code < 2 ? code : 2); /* not more than it supports */
        d->r.mrrs = 128u << code;
        cfg_write_be(&d->r, 0x68, code << 12 | code << 5 | 0x100, 0x3);
        try_sizes(d);
    }
    assert_true(d->r.most_in_flight > 32);
    drv_close(d);
}

/* Many queues, each 32 deep, nothing waits for anything. */
static void test_io_queues_deep(void **state)
{
    enum { EACH = 32, BYTES = 8192 };
    driver *d = drv_up(QUEUES_USED);
    uint8_t *data = malloc(BYTES * EACH * QUEUES_USED);
    bool seen[QUEUES_USED * EACH] = { false };
    (void)state;
    assert_non_null(data);
    pattern(d, data, BYTES * EACH * QUEUES_USED);
    memcpy(d->r.mem + MEM_DATA, data, BYTES * EACH * QUEUES_USED);
    for (unsigned round = 0; round < 2; round++) { /* write, then read elsewhere */
        uint16_t first = (uint16_t)(d->cid + 1);
        unsigned done = 0;
        memset(seen, 0, sizeof seen);
        for (unsigned i = 0; i < EACH; i++) {
            for (unsigned q = 1; q <= QUEUES_USED; q++) {
                unsigned nr = i * QUEUES_USED + q - 1;
                sqe s = io(round ? 2 : 1, nr * (BYTES / 512), BYTES / 512);
                s.dw[6] = MEM_LOW + MEM_DATA + round * 0x400000 + nr * BYTES;
                s.dw[8] = s.dw[6] + 4096;
                (void)drv_send(d, q, &s);
            }
        }
        for (unsigned q = 1; q <= QUEUES_USED; q++)
            drv_ring(d, q);
        rc_run(&d->r);
        for (unsigned q = 1; q <= QUEUES_USED; q++) {
            result res;
            unsigned before = d->r.msi_count[q];
            assert_true(before > 0);
            while (drv_reap(d, q, &res)) {
                unsigned nr = (uint16_t)(res.cid - first);
                assert_int_equal(res.status, 0);
                assert_true(nr < EACH * QUEUES_USED && !seen[nr]);
                seen[nr] = true;
                done++;
            }
            drv_consumed(d, q);
        }
        assert_int_equal(done, EACH * QUEUES_USED);
    }
    assert_memory_equal(d->r.mem + MEM_DATA + 0x400000, data, BYTES * EACH * QUEUES_USED);
    free(data);
    drv_close(d);
}

/* A transfer asks for the next piece while others are in flight. */
static void test_io_is_pipelined(void **state)
{
    driver *d = drv_up(1);
    sqe s = io(1, 0, 16);
    (void)state;
    s.dw[8] = s.dw[6] + 4096;
    (void)drv_send(d, 1, &s);
    d->r.hold = true;
    drv_ring(d, 1);
    rc_run(&d->r);
    while (rc_answer_one(&d->r)) {
    } /* the queue entry */
    d->r.most_in_flight = 0;
    rc_look(&d->r);
    assert_int_equal(d->r.most_in_flight, 8192 / 512);
    drv_close(d);
}

/* What cannot leave is not sent: the port's queue stays short, and the rest comes later. */
static void test_io_waits_for_the_port(void **state)
{
    driver *d = drv_up(1);
    sqe s = io(2, 0, 16);
    result res;
    unsigned before = d->r.writes;
    (void)state;
    s.dw[8] = s.dw[6] + 4096;
    (void)drv_send(d, 1, &s);
    d->r.closed = true;
    drv_ring(d, 1);
    rc_run(&d->r);
    assert_int_equal(d->r.writes, before);
    assert_false(drv_reap(d, 1, &res));
    d->r.closed = false;
    nvme_kind.tick(d->r.dev, 1);
    rc_run(&d->r);
    assert_true(drv_reap(d, 1, &res));
    assert_int_equal(res.status, 0);
    drv_close(d);
}

/* More data in commands than there is room for buffers. */
static void test_io_buffers_run_out(void **state)
{
    driver *d = drv_up(1);
    unsigned done = 0;
    result res;
    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        uint64_t prp[NVME_PAGES];
        sqe s = io(1, 0, 2048);
        scatter(d, &s, NVME_TRANSFER_BYTES, 0, prp);
        s.dw[8] = MEM_LOW + MEM_LISTS; /* all of them may share one list */
        for (unsigned k = 1; k < 256; k++)
            dxpu_put_le64(d->r.mem + MEM_LISTS + (size_t)(k - 1) * 8, MEM_LOW + MEM_DATA);
        (void)drv_send(d, 1, &s);
    }
    d->r.hold = true;
    drv_ring(d, 1);
    for (unsigned i = 0; i < 30; i++) { /* let entries come, but no data */
        rc_look(&d->r);
        for (unsigned k = 0; k < 64 && !model(d)->starving.head; k++)
            (void)rc_answer_one(&d->r);
    }
    assert_non_null(model(d)->starving.head);
    assert_true(model(d)->buffer_bytes <= NVME_BUFFER_BYTES);
    d->r.hold = false;
    rc_run(&d->r);
    while (drv_reap(d, 1, &res)) {
        assert_int_equal(res.status, 0);
        done++;
    }
    assert_int_equal(done, 60);
    assert_int_equal(model(d)->buffer_bytes, 0);
    drv_close(d);
}

/* Completions wait while their queue is full, and keep their order. */
static void test_io_completion_queue_full(void **state)
{
    driver *d = drv_up(0);
    unsigned done = 0;
    result res;
    (void)state;
    queue_restart(&d->q[1], DEPTH);
    assert_int_equal(make_cq(d, 1, 4, 1), 0);
    assert_int_equal(make_sq(d, 1, DEPTH, 1), 0);
    for (unsigned i = 0; i < 20; i++) {
        sqe s = io(0, 0, 1); /* flush */
        (void)drv_send(d, 1, &s);
    }
    drv_ring(d, 1);
    d->q[1].depth = 4;
    for (unsigned rounds = 0; done < 20 && rounds < 30; rounds++) {
        unsigned got = 0;
        rc_run(&d->r);
        while (drv_reap(d, 1, &res)) {
            got++;
            assert_int_equal(res.cid, d->cid - 19 + done++);
        }
        assert_true(got <= 3);
        drv_consumed(d, 1);
    }
    assert_int_equal(done, 20);
    drv_close(d);
}

static void test_io_other_commands(void **state)
{
    driver *d = drv_up(1);
    uint8_t data[4096], back[4096], zero[4096] = { 0 };
    sqe s;
    (void)state;
    pattern(d, data, sizeof data);
    assert_int_equal(move(d, true, 8, sizeof data, 0, data), 0);
    s = io(5, 8, 8); /* compare */
    memcpy(d->r.mem + MEM_DATA, data, sizeof data);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    d->r.mem[MEM_DATA + 4000] ^= 1;
    assert_int_equal(drv_do(d, 1, &s).status, NVME_COMPARE_FAILURE | NVME_DNR);
    s = io(8, 9, 2); /* write zeroes */
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    memset(data + 512, 0, 1024);
    assert_int_equal(move(d, false, 8, sizeof back, 0, back), 0);
    assert_memory_equal(back, data, sizeof data);
    s = command(9, 1); /* two ranges */
    s.dw[10] = 1;
    s.dw[11] = 4;
    memset(d->r.mem + MEM_DATA, 0, 32);
    dxpu_put_le32(d->r.mem + MEM_DATA + 4, 4);
    dxpu_put_le64(d->r.mem + MEM_DATA + 8, 8);
    dxpu_put_le32(d->r.mem + MEM_DATA + 20, 4);
    dxpu_put_le64(d->r.mem + MEM_DATA + 24, 12);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(move(d, false, 8, sizeof back, 0, back), 0);
    assert_memory_equal(back, zero, sizeof zero);
    dxpu_put_le64(d->r.mem + MEM_DATA + 24, STORE_BYTES / 512 - 3);
    dxpu_put_le32(d->r.mem + MEM_DATA, 0);
    memset(d->r.mem + MEM_DATA, 0, 20);
    dxpu_put_le32(d->r.mem + MEM_DATA + 20, 4);
    assert_int_equal(drv_do(d, 1, &s).status, NVME_LBA_RANGE | NVME_DNR);
    drv_close(d);
}

static void test_io_format(void **state)
{
    driver *d = drv_up(1);
    uint8_t data[8192], back[8192], zero[8192] = { 0 };
    sqe s;
    (void)state;
    pattern(d, data, sizeof data);
    assert_int_equal(move(d, true, 16, sizeof data, 0, data), 0);
    assert_int_equal(admin(d, 0x80, 1, 2, 0), NVME_INVALID_FORMAT | NVME_DNR);
    assert_int_equal(admin(d, 0x80, 1, 1 | 1 << 5, 0), NVME_INVALID_FORMAT | NVME_DNR);
    assert_int_equal(admin(d, 0x80, 1, 1 | 2 << 9, 0), NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(admin(d, 0x80, 7, 1, 0), NVME_INVALID_NAMESPACE | NVME_DNR);
    assert_int_equal(move(d, false, 16, sizeof back, 0, back), 0);
    assert_memory_equal(back, data, sizeof data); /* none of them did anything */
    assert_int_equal(admin(d, 0x80, 1, 1, 0), 0);
    assert_int_equal(identify(d, 0, 1), 0);
    assert_int_equal(dxpu_get_le64(d->r.mem + MEM_DATA), STORE_BYTES / 4096);
    assert_int_equal(d->r.mem[MEM_DATA + 26], 1);
    s = io(2, 2, 2);
    s.dw[8] = s.dw[6] + 4096;
    memset(d->r.mem + MEM_DATA, 0xee, 8192);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_memory_equal(d->r.mem + MEM_DATA, zero, sizeof zero);
    s = io(2, STORE_BYTES / 4096, 1);
    assert_int_equal(drv_do(d, 1, &s).status, NVME_LBA_RANGE | NVME_DNR);
    drv_close(d);
}

static void file_has(const char *path, uint64_t at, const uint8_t *data, size_t len)
{
    uint8_t back[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fread(back, 1, len, f), len);
    assert_memory_equal(back, data, len);
    fclose(f);
}

static void test_io_file(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    int fd = mkstemp(path);
    device_settings set = {
        .mps_bytes = 512, .file = path, .file_bytes = STORE_BYTES, .identity = 1
    };
    device_port port = { .emit = rc_emitted };
    driver *d;
    uint8_t data[4096], back[4096];
    sqe s = io(0, 0, 1);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    d = drv_open(path);
    assert_null(nvme_kind.create(&set, &port)); /* one controller a file */
    drv_boot(d, 1);
    pattern(d, data, sizeof data);
    assert_int_equal(move(d, true, 100, sizeof data, 0, data), 0);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    file_has(path, 51200, data, sizeof data);
    s = io(8, 101, 1);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    memset(data + 512, 0, 512);
    file_has(path, 51200, data, sizeof data);
    try_sizes(d);
    assert_int_equal(move(d, true, 100, sizeof data, 0, data), 0);
    drv_close(d);
    d = drv_open(path); /* the next start finds it */
    drv_enumerate(d);
    drv_enable(d);
    drv_queues(d, 1);
    assert_int_equal(move(d, false, 100, sizeof data, 0, back), 0);
    assert_memory_equal(back, data, sizeof data);
    drv_close(d);
    remove_disk(path);
}

static driver *drv_up_file(char *path)
{
    int fd = mkstemp(path);
    driver *d;
    assert_true(fd >= 0);
    close(fd);
    d = drv_open(path);
    drv_boot(d, 1);
    sync_count = 0;
    return d;
}

/* What was promised to be durable was synced, and only that. */
static void test_io_durable(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    driver *d = drv_up_file(path);
    uint8_t data[512] = { 1 };
    sqe s = io(1, 0, 1), flush = io(0, 0, 1), zeroes = io(8, 0, 1), dataset = command(9, 1);
    (void)state;
    dataset.dw[11] = 4;
    assert_int_equal(move(d, true, 0, sizeof data, 0, data), 0);
    assert_int_equal(drv_do(d, 1, &zeroes).status, 0);
    assert_int_equal(sync_count, 0);
    assert_int_equal(drv_do(d, 1, &flush).status, 0);
    assert_int_equal(sync_count, 1);
    s.dw[12] |= 1u << 30; /* Force Unit Access */
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(sync_count, 2);
    assert_int_equal(feature(d, true, 6, 0, 0).status, 0); /* the cache goes off */
    assert_int_equal(sync_count, 3);
    assert_int_equal(move(d, true, 0, sizeof data, 0, data), 0);
    assert_int_equal(sync_count, 4);
    assert_int_equal(drv_do(d, 1, &zeroes).status, 0);
    assert_int_equal(sync_count, 5);
    memset(d->r.mem + MEM_DATA, 0, 16);
    dxpu_put_le32(d->r.mem + MEM_DATA + 4, 1);
    assert_int_equal(drv_do(d, 1, &dataset).status, 0);
    assert_int_equal(sync_count, 6);
    reg_set32(&d->r, 0x14, reg32(&d->r, 0x14) | 1 << 14); /* shutdown */
    assert_int_equal(sync_count, 7);
    assert_int_equal(reg32(&d->r, 0x1c) & 0xe, 0x8); /* complete, no fatal status */
    drv_close(d);
    remove_disk(path);
}

/* What could not be made durable is not an orderly shutdown. */
static void test_shutdown_of_a_store_that_fails(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    driver *d = drv_up_file(path);
    (void)state;
    disk_fails = true;
    reg_set32(&d->r, 0x14, reg32(&d->r, 0x14) | 1 << 14);
    disk_fails = false;
    assert_int_equal(reg32(&d->r, 0x1c) & 0xe, 0x2);
    drv_close(d);
    remove_disk(path);
}

/* -- A block is never seen half written -- */

static block_store shared;
static pthread_t late_writer;
static volatile bool late_done;

static void *write_late(void *user)
{
    static const uint8_t data[4096] = { 9 };
    (void)user;
    assert_int_equal(block_store_write(&shared, 0, data, sizeof data), 0);
    late_done = true;
    return NULL;
}

static void read_beside(void)
{
    uint8_t got[512];
    assert_int_equal(block_store_read_now(&shared, 3584, got, 512), -1);
    assert_int_equal(block_store_read_now(&shared, 4096, got, 512), 512); /* the control */
}

static void write_beside(void)
{
    static const uint8_t other[512];
    uint8_t got[512];
    beside_read = NULL;
    assert_int_equal(block_store_read_now(&shared, 0, got, 512), 512);
    assert_int_equal(block_store_write(&shared, 4096, other, 512), 0); /* the control */
    assert_int_equal(pthread_create(&late_writer, NULL, write_late, NULL), 0);
    usleep(20000);
    assert_false(late_done);
}

static void test_accesses_that_overlap(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    uint8_t data[4096] = { 1 };
    (void)state;
    close(mkstemp(path));
    assert_int_equal(block_store_open(&shared, "nvme", path, 8192, false), 0);
    assert_int_equal(block_store_write(&shared, 4096, data, 4096), 0); /* cached */
    beside_write = read_beside;
    assert_int_equal(block_store_write(&shared, 0, data, 4096), 0);
    beside_write = NULL;
    beside_read = write_beside;
    assert_int_equal(block_store_read(&shared, 0, data, 4096), 0);
    assert_int_equal(data[0], 1);
    assert_int_equal(pthread_join(late_writer, NULL), 0);
    assert_int_equal(block_store_read(&shared, 0, data, 4096), 0);
    assert_int_equal(data[0], 9);
    block_store_close(&shared);
    remove_disk(path);
}

/* A hint's cost is bounded: of memory a given number of bytes is cleared by each command. */
static void test_deallocate_is_a_hint(void **state)
{
    block_store s;
    uint64_t left = 512;
    (void)state;
    assert_int_equal(block_store_open(&s, "nvme", NULL, NVME_PAGE_BYTES, false), 0);
    memset(s.bytes, 1, NVME_PAGE_BYTES);
    assert_int_equal(block_store_deallocate(&s, 0, 1024, &left), 0);
    assert_int_equal(s.bytes[0], 1);
    assert_int_equal(block_store_deallocate(&s, 512, 512, &left), 0);
    assert_int_equal(s.bytes[511], 1);
    assert_int_equal(s.bytes[512] | s.bytes[1023], 0);
    assert_int_equal(block_store_deallocate(&s, 0, 1, &left), 0);
    assert_int_equal(s.bytes[0], 1);
    block_store_close(&s);
}

static void test_io_store_fails(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    driver *d = drv_up_file(path);
    sqe wr = io(1, 0, 8), rd = io(2, 0, 8), cmp = io(5, 0, 8), flush = io(0, 0, 1);
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        uint16_t r = round ? NVME_READ_ERROR : 0, w = round ? NVME_WRITE_FAULT : 0;
        disk_fails = round == 1;
        memset(d->r.mem + MEM_DATA, 0, 4096);
        assert_int_equal(drv_do(d, 1, &wr).status, w);
        assert_int_equal(drv_do(d, 1, &rd).status, r);
        assert_int_equal(drv_do(d, 1, &cmp).status, r);
        assert_int_equal(drv_do(d, 1, &flush).status, w);
    }
    disk_fails = false;
    assert_int_equal(drv_do(d, 1, &rd).status, 0);
    drv_close(d);
    remove_disk(path);
}

/* device_port.fault */
static unsigned faults;
static void count_fault(void *user, const char *what)
{
    (void)user;
    assert_non_null(strstr(what, strerror(EIO)));
    faults++;
}

/* A step at a time until it is over; how many there were. */
static unsigned wipe(void *device, int want)
{
    unsigned steps = 0;
    int how;
    do {
        how = nvme_kind.wipe(device, steps++ == 0);
    } while (how == DEVICE_WIPING);
    assert_int_equal(how, want);
    return steps;
}

/* M-65: every byte of every namespace, in many short steps. */
static void test_wipe_of_memory(void **state)
{
    device_settings set = { .memory_bytes = STORE_BYTES, .mps_bytes = 512, .namespaces = 2 };
    device_port port = { .emit = rc_emitted, .fault = count_fault };
    nvme *n = nvme_kind.create(&set, &port);
    uint64_t places[] = { 0, 4096, STORE_BYTES / 2 - 1, STORE_BYTES - 1 };
    (void)state;
    assert_non_null(n);
    for (unsigned i = 0; i < 2 * sizeof places / sizeof places[0]; i++)
        n->ns[i % 2].store->bytes[places[i / 2]] = 0x5a;
    assert_true(wipe(n, DEVICE_WIPED) >= 2 * STORE_BYTES / (1 << 20));
    for (unsigned i = 0; i < 2 * STORE_BYTES; i++)
        assert_int_equal(n->ns[i % 2].store->bytes[i / 2], 0);
    (void)nvme_kind.wipe(n, true); /* begun, and then from the beginning */
    n->ns[0].store->bytes[0] = 1;
    wipe(n, DEVICE_WIPED);
    assert_int_equal(n->ns[0].store->bytes[0], 0);
    for (bool begin = true; begin || !n->wipe.erased; begin = false)
        assert_int_equal(nvme_kind.wipe(n, begin), DEVICE_WIPING);
    n->ns[0].store->bytes[STORE_BYTES - 1] = 1; /* a medium that keeps what it should not */
    assert_int_equal(nvme_kind.wipe(n, false), DEVICE_WIPING);
    while (n->wipe.at + (1 << 20) < STORE_BYTES)
        assert_int_equal(nvme_kind.wipe(n, false), DEVICE_WIPING);
    assert_int_equal(nvme_kind.wipe(n, false), DEVICE_UNWIPED);
    nvme_kind.destroy(n);
}

static uint64_t medium_of(const char *files, uint64_t bytes, bool *pristine)
{
    device_settings set = { .mps_bytes = 512, .file = files, .file_bytes = bytes };
    device_port port = { .emit = rc_emitted };
    void *n;
    uint64_t medium;
    set.memory_bytes = files ? 0 : STORE_BYTES;
    n = nvme_kind.create(&set, &port);
    assert_non_null(n);
    medium = nvme_kind.medium(n, pristine);
    nvme_kind.destroy(n);
    return medium;
}

/* M-67: what stays has a number of its own; what create() has made has no data. */
static void test_medium(void **state)
{
    char one[] = "/tmp/unit_nvme.XXXXXX", two[] = "/tmp/unit_nvme.XXXXXX", files[64], swapped[64];
    int fds[] = { mkstemp(one), mkstemp(two) };
    uint64_t first, both;
    bool pristine = false;
    (void)state;
    assert_true(fds[0] >= 0 && fds[1] >= 0);
    snprintf(files, sizeof files, "%s,%s", one, two);
    snprintf(swapped, sizeof swapped, "%s,%s", two, one);
    assert_int_equal(medium_of(NULL, 0, &pristine), 0);
    assert_true(pristine);
    first = medium_of(one, STORE_BYTES, &pristine); /* it has no byte */
    assert_true(first && pristine);
    assert_true(medium_of(one, STORE_BYTES, &pristine) == first && !pristine);
    both = medium_of(files, STORE_BYTES, &pristine); /* one of them is new */
    assert_true(both && both != first && !pristine);
    assert_true(medium_of(files, 0, &pristine) == both);
    assert_true(medium_of(swapped, 0, &pristine) != both);
    assert_true(medium_of(two, 0, &pristine) != first);
    assert_true(medium_of(one, STORE_BYTES / 2, &pristine) != first);
    for (unsigned i = 0; i < 2; i++)
        close(fds[i]);
    remove_disk(one);
    remove_disk(two);
}

static void put_attribute(const char *dir, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* M-67: a disk is known by its own name, whichever number the kernel gave it. */
static void test_medium_of_a_disk(void **state)
{
    char sys[] = "/tmp/unit_nvme.XXXXXX", disk[64], part[80], other[80], command[128];
    (void)state;
    assert_non_null(mkdtemp(sys));
    snprintf(disk, sizeof disk, "%s/sda", sys);
    snprintf(part, sizeof part, "%s/sda1", disk);
    snprintf(other, sizeof other, "%s/sda2", disk);
    assert_int_equal(mkdir(disk, 0700) + mkdir(part, 0700) + mkdir(other, 0700), 0);
    put_attribute(part, "partition", "1\n");
    put_attribute(other, "partition", "2\n");
    assert_true(block_store_disk(disk) == 0); /* it has no name */
    assert_true(block_store_disk(part) == 0);
    put_attribute(disk, "serial", "\n");
    assert_true(block_store_disk(disk) == 0);
    put_attribute(disk, "serial", "one\n");
    uint64_t one = block_store_disk(disk), first = block_store_disk(part);
    assert_true(one && first && one != first);
    assert_true(block_store_disk(other) != first);
    put_attribute(disk, "serial", "one  "); /* the control: the same one, found again */
    assert_true(block_store_disk(disk) == one && block_store_disk(part) == first);
    put_attribute(disk, "serial", "eno\n");
    assert_true(block_store_disk(disk) != one && block_store_disk(part) != first);
    put_attribute(disk, "wwid", "naa.1\n"); /* counts for more */
    uint64_t wwid = block_store_disk(disk);
    put_attribute(disk, "serial", "one\n");
    assert_true(wwid && wwid != one && block_store_disk(disk) == wwid);
    snprintf(command, sizeof command, "rm -r %s", sys);
    assert_int_equal(system(command), 0);
}

/* A medium that fails is reported once, until a wipe has shown that it works; a full one is not. */
static void test_wipe_and_faults_of_a_file(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    int fd = mkstemp(path);
    device_settings set = { .mps_bytes = 512, .file = path, .file_bytes = STORE_BYTES };
    device_port port = { .emit = rc_emitted, .fault = count_fault };
    nvme *n;
    (void)state;
    assert_true(fd >= 0);
    n = nvme_kind.create(&set, &port);
    assert_non_null(n);
    faults = 0;
    assert_int_equal(pwrite(fd, "secret", 6, STORE_BYTES - 6), 6);
    wipe(n, DEVICE_WIPED);
    for (unsigned i = 0; i < 6; i++) {
        char c = 1;
        assert_int_equal(pread(fd, &c, 1, STORE_BYTES - 6 + i), 1);
        assert_int_equal(c, 0);
    }
    block_health_failed(&n->health, n->fn.pci.port, ENOSPC, 0);
    assert_int_equal(faults, 0);
    for (unsigned round = 1; round <= 2; round++) {
        disk_fails = true;
        wipe(n, DEVICE_UNWIPED);
        wipe(n, DEVICE_UNWIPED);
        disk_fails = false;
        assert_int_equal(faults, round);
        wipe(n, DEVICE_WIPED);
    }
    assert_int_equal(ftruncate(fd, STORE_BYTES - 1), 0); /* the last byte is gone */
    wipe(n, DEVICE_UNWIPED);
    assert_int_equal(faults, 3);
    nvme_kind.destroy(n);
    close(fd);
    remove_disk(path);
}

enum { SGL_LISTS = 0x300000 }; /* segments in host memory, above the queues */

static void sgl_put(uint8_t *d, unsigned type, uint64_t address, uint32_t bytes)
{
    memset(d, 0, 16);
    dxpu_put_le64(d, address);
    dxpu_put_le32(d + 8, bytes);
    d[15] = (uint8_t)(type << 4);
}

static void sgl_command(sqe *s, unsigned type, uint64_t address, uint32_t bytes)
{
    uint8_t d[16];
    sgl_put(d, type, address, bytes);
    s->dw[0] |= 1 << 14;
    for (unsigned i = 0; i < 4; i++)
        s->dw[6 + i] = dxpu_get_le32(d + (size_t)i * 4);
}

enum { DATA_BLOCK, BIT_BUCKET, SEGMENT, LAST_SEGMENT, KEYED };

/* ==== 7  Namespaces =========================================================================== */

static uint16_t manage(driver *d, uint32_t nsid, uint32_t select)
{
    return admin(d, 0x0d, nsid, select, 0);
}

static result make_namespace(driver *d, uint64_t blocks, uint64_t capacity, uint8_t format)
{
    uint8_t *p = d->r.mem + MEM_DATA;
    sqe s = command(0x0d, 0);
    memset(p, 0, 4096);
    dxpu_put_le64(p, blocks);
    dxpu_put_le64(p + 8, capacity);
    p[26] = format;
    return drv_do(d, 0, &s);
}

static uint16_t attach_it(driver *d, uint32_t nsid, bool to, uint32_t list)
{
    memset(d->r.mem + MEM_DATA, 0, 4096);
    dxpu_put_le32(d->r.mem + MEM_DATA, list);
    return admin(d, 0x15, nsid, !to, 0);
}

enum { OURS = NVME_CONTROLLER << 16 | 1 }; /* a list of this controller alone */

/* The numbers of a list that identify gives, as digits. */
static unsigned list_of(driver *d, uint32_t cns, uint32_t after)
{
    unsigned digits = 0;
    assert_int_equal(identify(d, cns, after), 0);
    for (const uint8_t *p = d->r.mem + MEM_DATA; dxpu_get_le32(p); p += 4)
        digits = digits * 10 + dxpu_get_le32(p);
    return digits;
}

static sqe io_to(uint32_t nsid, uint8_t opcode, uint64_t lba, uint32_t blocks)
{
    sqe s = io(opcode, lba, blocks);
    s.dw[1] = nsid;
    return s;
}

static void test_namespaces_are_apart(void **state)
{
    driver *d = drv_up_namespaces(1, 3);
    uint8_t *p = d->r.mem + MEM_DATA, uuid[4][16];
    sqe s;
    (void)state;
    assert_int_equal(identify(d, 1, 0), 0);
    assert_int_equal(dxpu_get_le32(p + 516), 3);
    assert_int_equal(dxpu_get_le64(p + 280), 3 * STORE_BYTES);
    assert_int_equal(dxpu_get_le64(p + 296), 0);
    assert_int_equal(list_of(d, 2, 0), 123);
    assert_int_equal(list_of(d, 2, 1), 23);
    assert_int_equal(list_of(d, 2, 3), 0);
    nvme_uuid(model(d), 0, uuid[0]);
    for (uint32_t nsid = 1; nsid <= 3; nsid++) {
        assert_int_equal(identify(d, 3, nsid), 0);
        memcpy(uuid[nsid], p + 4, 16);
        for (uint32_t other = 0; other < nsid; other++)
            assert_memory_not_equal(uuid[nsid], uuid[other], 16);
    }
    for (uint32_t nsid = 1; nsid <= 3; nsid++) {
        memset(p, (int)nsid, 512);
        s = io_to(nsid, 1, 7, 1);
        assert_int_equal(drv_do(d, 1, &s).status, 0);
    }
    for (uint32_t nsid = 1; nsid <= 3; nsid++) {
        s = io_to(nsid, 2, 7, 1);
        assert_int_equal(drv_do(d, 1, &s).status, 0);
        assert_int_equal(p[511], nsid);
    }
    assert_int_equal(admin(d, 0x80, 2, 1, 0), 0); /* format one: the others do not notice */
    s = io_to(2, 2, 0, 1);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(p[0], 0);
    s = io_to(3, 2, 7, 1);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(p[0], 3);
    assert_int_equal(identify(d, 0, 2), 0);
    assert_int_equal(p[26], 1);
    assert_int_equal(identify(d, 0, 3), 0);
    assert_int_equal(p[26], 0);
    drv_close(d);
}

static void test_namespace_errors(void **state)
{
    static const uint8_t opcodes[] = { 1, 2, 5, 8, 9, 12, 0 };
    driver *d = drv_up_namespaces(1, 2);
    const uint16_t inactive = NVME_INVALID_FIELD | NVME_DNR;
    const uint16_t none = NVME_INVALID_NAMESPACE | NVME_DNR;
    (void)state;
    assert_int_equal(attach_it(d, 2, false, OURS), 0);
    for (unsigned i = 0; i < sizeof opcodes; i++) {
        sqe s = io_to(2, opcodes[i], 0, 1);
        assert_int_equal(drv_do(d, 1, &s).status, inactive);
        s.dw[1] = 3;
        assert_int_equal(drv_do(d, 1, &s).status, none);
        s.dw[1] = 0;
        assert_int_equal(drv_do(d, 1, &s).status, none);
        s.dw[1] = 0xffffffff;
        assert_int_equal(drv_do(d, 1, &s).status, opcodes[i] ? none : 0);
        s.dw[1] = 1;
        assert_int_equal(drv_do(d, 1, &s).status, 0);
    }
    assert_int_equal(admin(d, 0x80, 2, 0, 0), inactive);
    assert_int_equal(identify(d, 3, 2), inactive);
    assert_int_equal(identify(d, 3, 3), none);
    assert_int_equal(identify(d, 0, 3), none);
    assert_int_equal(identify(d, 0x11, 3), none);
    assert_int_equal(identify(d, 0x12, 0), none);
    assert_int_equal(identify(d, 0x10, 0xfffffffe), none);
    assert_int_equal(identify(d, 0, 2), 0); /* all zero */
    assert_int_equal(dxpu_get_le64(d->r.mem + MEM_DATA), 0);
    assert_int_equal(identify(d, 0x11, 2), 0);
    assert_int_equal(dxpu_get_le64(d->r.mem + MEM_DATA), STORE_BYTES / 512);
    assert_int_equal(identify(d, 0, 0xffffffff), 0); /* what all have in common */
    assert_int_equal(dxpu_get_le64(d->r.mem + MEM_DATA), 0);
    assert_int_equal(dxpu_get_le32(d->r.mem + MEM_DATA + 132), 12u << 16);
    assert_int_equal(attach_it(d, 3, true, OURS), none);
    assert_int_equal(attach_it(d, 2, false, OURS), NVME_NOT_ATTACHED | NVME_DNR);
    assert_int_equal(attach_it(d, 1, true, OURS), NVME_ALREADY_ATTACHED | NVME_DNR);
    assert_int_equal(attach_it(d, 2, true, OURS + 1), NVME_CONTROLLER_LIST | NVME_DNR);
    assert_int_equal(attach_it(d, 2, true, OURS + 0x10000), NVME_CONTROLLER_LIST | NVME_DNR);
    assert_int_equal(admin(d, 0x15, 1, 2, 0), inactive);
    assert_int_equal(manage(d, 1, 2), inactive);
    assert_int_equal(manage(d, 3, 1), none);
    drv_close(d);
}

static void test_namespace_attachment(void **state)
{
    driver *d = drv_up_namespaces(1, 2);
    sqe aer = command(0x0c, 0);
    uint8_t *p = d->r.mem + MEM_DATA;
    result res;
    (void)state;
    assert_int_equal(identify(d, 0x12, 2), 0);
    assert_int_equal(dxpu_get_le32(p), OURS);
    assert_int_equal(identify(d, 0x12 | (NVME_CONTROLLER + 1) << 16, 2), 0);
    assert_int_equal(dxpu_get_le32(p), 0);
    assert_int_equal(attach_it(d, 2, false, OURS), 0);
    assert_int_equal(list_of(d, 2, 0), 1);
    assert_int_equal(list_of(d, 0x10, 0), 12);
    assert_int_equal(identify(d, 0x12, 2), 0);
    assert_int_equal(dxpu_get_le32(p), 0);
    assert_int_equal(identify(d, 0x13, 0), 0);
    assert_int_equal(dxpu_get_le32(p), OURS);
    assert_int_equal(admin(d, 0x02, 0, 4 | 1023u << 16 | 1u << 15, 0), 0);
    assert_int_equal(dxpu_get_le32(p), 2);
    assert_int_equal(admin(d, 0x02, 0, 4 | 1023u << 16, 0), 0);
    assert_int_equal(dxpu_get_le32(p), 2); /* kept by the first reading, not by this one */
    assert_int_equal(admin(d, 0x02, 0, 4 | 1023u << 16, 0), 0);
    assert_int_equal(dxpu_get_le32(p), 0);
    assert_int_equal(feature(d, true, 11, 0x100, 0).status, 0);
    (void)drv_send(d, 0, &aer);
    drv_ring(d, 0);
    rc_run(&d->r);
    assert_false(drv_reap(d, 0, &res)); /* what was before does not count */
    memset(p, 0, 4096);
    dxpu_put_le32(p, OURS);
    aer = command(0x15, 2);
    (void)drv_send(d, 0, &aer);
    drv_ring(d, 0);
    rc_run(&d->r);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.dw0, 0x040002);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.status, 0);
    drv_consumed(d, 0);
    assert_int_equal(list_of(d, 2, 0), 12);
    drv_close(d);
}

static void test_namespace_management(void **state)
{
    const uint64_t all = STORE_BYTES / 512;
    driver *d = drv_up_namespaces(1, 2);
    uint8_t *p = d->r.mem + MEM_DATA, uuid[16];
    sqe s = io_to(2, 1, 3, 1);
    (void)state;
    memset(p, 0x7e, 512);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(identify(d, 3, 2), 0);
    memcpy(uuid, p + 4, 16);
    assert_int_equal(make_namespace(d, 8, 8, 0).status, NVME_NO_NSID | NVME_DNR);
    assert_int_equal(manage(d, 2, 1), 0);
    assert_int_equal(list_of(d, 0x10, 0), 1);
    assert_int_equal(manage(d, 2, 1), NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(identify(d, 1, 0), 0);
    assert_int_equal(dxpu_get_le64(p + 296), STORE_BYTES);
    assert_int_equal(make_namespace(d, all + 1, all + 1, 0).status, NVME_NO_CAPACITY | NVME_DNR);
    assert_int_equal(make_namespace(d, UINT64_MAX, UINT64_MAX, 0).status,
                     NVME_NO_CAPACITY | NVME_DNR);
    assert_int_equal(make_namespace(d, 0, 0, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(make_namespace(d, 8, 9, 0).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(make_namespace(d, 8, 7, 0).status, NVME_NO_THIN_PROVISIONING | NVME_DNR);
    assert_int_equal(make_namespace(d, 8, 8, 2).status, NVME_INVALID_FORMAT | NVME_DNR);
    assert_int_equal(make_namespace(d, 16, 16, 1).dw0, 2);
    assert_int_equal(list_of(d, 2, 0), 1); /* not attached yet */
    assert_int_equal(attach_it(d, 2, true, OURS), 0);
    assert_int_equal(identify(d, 3, 2), 0);
    assert_memory_not_equal(p + 4, uuid, 16); /* it is another one */
    assert_int_equal(identify(d, 0, 2), 0);
    assert_int_equal(dxpu_get_le64(p), 16);
    s = io_to(2, 2, 16, 1);
    assert_int_equal(drv_do(d, 1, &s).status, NVME_LBA_RANGE | NVME_DNR);
    s = io_to(2, 2, 0, 1);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(p[3 * 512], 0); /* nothing is left of the old one */
    assert_int_equal(manage(d, 0xffffffff, 1), 0);
    assert_int_equal(list_of(d, 0x10, 0), 0);
    for (unsigned round = 0; round < 2; round++) { /* the next user finds it so, until a wipe */
        nvme_kind.reset(d->r.dev);
        if (round)
            wipe(d->r.dev, DEVICE_WIPED);
        drv_boot(d, 0);
        assert_int_equal(list_of(d, 2, 0), round ? 12 : 0);
    }
    drv_close(d);
}

/* Two files are two namespaces; invalid names, and too many. */
static void test_namespaces_in_files(void **state)
{
    char one[] = "/tmp/unit_nvme.XXXXXX", two[] = "/tmp/unit_nvme.XXXXXX", both[64], many[200];
    device_settings set = { .mps_bytes = 512, .file_bytes = STORE_BYTES, .identity = 1 };
    device_port port = { .emit = rc_emitted };
    int fd1 = mkstemp(one), fd2 = mkstemp(two);
    uint8_t data[512];
    driver *d;
    sqe s = io_to(2, 1, 9, 1);
    (void)state;
    assert_true(fd1 >= 0 && fd2 >= 0);
    snprintf(both, sizeof both, "%s,%s", one, two);
    d = drv_open(both);
    drv_boot(d, 1);
    memset(data, 0x42, sizeof data);
    memcpy(d->r.mem + MEM_DATA, data, sizeof data);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    file_has(two, 9 * 512, data, sizeof data);
    memset(data, 0, sizeof data);
    file_has(one, 9 * 512, data, sizeof data);
    sync_count = 0;
    s = io_to(2, 0, 0, 1); /* flush one, then all */
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(sync_count, 1);
    s.dw[1] = 0xffffffff;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(sync_count, 3);
    drv_close(d);
    snprintf(many, sizeof many, "%s,%s", one, one); /* it is locked by the first */
    set.file = many;
    assert_null(nvme_kind.create(&set, &port));
    snprintf(many, sizeof many, "%s,", one);
    assert_null(nvme_kind.create(&set, &port));
    set.file = NULL;
    set.namespaces = NVME_NAMESPACES + 1;
    assert_null(nvme_kind.create(&set, &port));
    close(fd1);
    close(fd2);
    remove_disk(one);
    remove_disk(two);
}

static uint64_t file_space(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* Deallocating gives space back, Write Zeroes only when it may. */
static void test_deallocation(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    driver *d = drv_up_file(path);
    uint8_t *p = d->r.mem + MEM_DATA;
    uint64_t full;
    sqe s = io(1, 0, 2048);
    (void)state;
    memset(p, 0xaa, 1 << 20);
    sgl_command(&s, DATA_BLOCK, MEM_LOW + MEM_DATA, 1 << 20);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    full = file_space(path);
    assert_true(full >= 1 << 20);
    s = io(8, 0, 1024);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_true(file_space(path) >= 1 << 20);
    s.dw[12] |= 1u << 25;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_true(file_space(path) <= full - (1 << 19));
    s = command(9, 1);
    s.dw[11] = 3; /* hints, but no deallocation */
    memset(p, 0, 16);
    dxpu_put_le32(p + 4, 1024);
    dxpu_put_le64(p + 8, 1024);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_true(file_space(path) >= 1 << 19);
    s.dw[11] = 4;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_true(file_space(path) <= full - (1 << 20));
    s = io(2, 1024, 1);
    p[0] = 1;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(p[0], 0);
    drv_close(d);
    remove_disk(path);
}

static void test_verify(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    driver *d = drv_up_file(path);
    sqe s = io(12, 0, STORE_BYTES / 512);
    (void)state;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    disk_fails = true;
    assert_int_equal(drv_do(d, 1, &s).status, NVME_READ_ERROR);
    disk_fails = false;
    s.dw[10] = 1;
    assert_int_equal(drv_do(d, 1, &s).status, NVME_LBA_RANGE | NVME_DNR);
    drv_close(d);
    remove_disk(path);
}

/* ==== 8  Errors =============================================================================== */

static void test_errors_of_io(void **state)
{
    driver *d = drv_up(1);
    const uint64_t all = STORE_BYTES / 512;
    sqe s;
    (void)state;
    s = io(2, all - 1, 1);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    s = io(2, all, 1);
    assert_int_equal(drv_do(d, 1, &s).status, NVME_LBA_RANGE | NVME_DNR);
    s = io(1, all - 1, 2);
    assert_int_equal(drv_do(d, 1, &s).status, NVME_LBA_RANGE | NVME_DNR);
    s = io(8, UINT64_MAX, 1);
    assert_int_equal(drv_do(d, 1, &s).status, NVME_LBA_RANGE | NVME_DNR);
    s = io(2, 0, 2049); /* more than MDTS */
    assert_int_equal(drv_do(d, 1, &s).status, NVME_INVALID_FIELD | NVME_DNR);
    s = io(2, 0, 1);
    s.dw[1] = 2;
    assert_int_equal(drv_do(d, 1, &s).status, NVME_INVALID_NAMESPACE | NVME_DNR);
    s.dw[1] = 0xffffffff;
    assert_int_equal(drv_do(d, 1, &s).status, NVME_INVALID_NAMESPACE | NVME_DNR);
    s.dw[0] = 0; /* Flush takes all namespaces, but no other */
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    s.dw[1] = 3;
    assert_int_equal(drv_do(d, 1, &s).status, NVME_INVALID_NAMESPACE | NVME_DNR);
    s = io(0x7f, 0, 1);
    assert_int_equal(drv_do(d, 1, &s).status, NVME_INVALID_OPCODE | NVME_DNR);
    s = io(2, 0, 1);
    s.dw[0] |= 3 << 14; /* neither PRPs nor SGLs */
    assert_int_equal(drv_do(d, 1, &s).status, NVME_INVALID_FIELD | NVME_DNR);
    s.dw[0] = 2 | 1 << 8; /* fused */
    assert_int_equal(drv_do(d, 1, &s).status, NVME_INVALID_FIELD | NVME_DNR);
    s = io(2, 0, 1);
    s.dw[12] |= 1u << 29; /* PRACT without protection information */
    assert_int_equal(drv_do(d, 1, &s).status, NVME_INVALID_FIELD | NVME_DNR);
    drv_close(d);
}

static void test_errors_of_prps(void **state)
{
    driver *d = drv_up(1);
    uint8_t *list = d->r.mem + MEM_LISTS;
    const uint16_t bad = NVME_PRP_OFFSET | NVME_DNR;
    sqe s = io(2, 0, 1);
    (void)state;
    s.dw[6] += 2;
    assert_int_equal(drv_do(d, 1, &s).status, bad);
    s = io(2, 0, 16);
    s.dw[8] = MEM_LOW + MEM_DATA + 4; /* the second page with an offset */
    assert_int_equal(drv_do(d, 1, &s).status, bad);
    s = io(2, 0, 24);
    s.dw[8] = MEM_LOW + MEM_LISTS + 4; /* a list between two entries */
    assert_int_equal(drv_do(d, 1, &s).status, bad);
    s.dw[8] = MEM_LOW + MEM_LISTS;
    dxpu_put_le64(list, MEM_LOW + MEM_DATA);
    dxpu_put_le64(list + 8, MEM_LOW + MEM_DATA + 8);
    assert_int_equal(drv_do(d, 1, &s).status, bad);
    dxpu_put_le64(list + 8, MEM_LOW + MEM_DATA);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    s.dw[8] = MEM_LOW + MEM_LISTS + 4088; /* an entry that only leads on, to no page */
    dxpu_put_le64(list + 4088, MEM_LOW + MEM_LISTS + 8);
    assert_int_equal(drv_do(d, 1, &s).status, bad);
    dxpu_put_le64(list + 4088, MEM_LOW + MEM_LISTS);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    s.dw[9] = 0x7777; /* a list where the host has nothing */
    assert_int_equal(drv_do(d, 1, &s).status, NVME_TRANSFER_ERROR);
    assert_true(cfg_read(&d->r, 0x04) & 0x20000000); /* received a master abort */
    drv_close(d);
}

/* Pieces of any size and alignment, buckets and empty ones among them, over several segments.
   keep[i]: where byte i of the data is in host memory, or 0 for nowhere. */
static void sgl_scatter(driver *d, sqe *s, uint32_t bytes, bool write, uint32_t *keep)
{
    rc *r = &d->r;
    uint32_t at = 0, place = MEM_DATA, list = SGL_LISTS, count, lead = 0;
    bool last = false, first = true;
    while (!last) {
        uint32_t start = list;
        last = (count = 1 + rnd(r) % 600) > 400 || at >= bytes / 2;
        for (uint32_t i = 0; last ? at < bytes : i < count && at < bytes / 2 + 64; i++) {
            uint32_t part = rnd(r) % 8 ? rnd(r) % 900 : 0, room = bytes - at;
            bool bucket = rnd(r) % 6 == 0;
            if (!(bucket && write)) {
                part = part < room ? part : room + (last ? rnd(r) % 64 : 0);
                for (uint32_t k = 0; k < part && at < bytes; k++)
                    keep[at++] = bucket ? 0 : place + k;
            }
            sgl_put(r->mem + list, bucket ? BIT_BUCKET : DATA_BLOCK, MEM_LOW + place, part);
            place += bucket ? 0 : part + rnd(r) % 5;
            list += 16;
        }
        if (first)
            sgl_command(s, last ? LAST_SEGMENT : SEGMENT, MEM_LOW + start,
                        list - start + (last ? 0 : 16));
        else
            sgl_put(r->mem + lead, last ? LAST_SEGMENT : SEGMENT, MEM_LOW + start,
                    list - start + (last ? 0 : 16));
        first = false;
        lead = list;
        list += 16 + 8 * (rnd(r) % 4);
    }
}

static void test_sgl_all_sizes(void **state)
{
    enum { MOST = 200 * 512 };
    driver *d = drv_up(1);
    rc *r = &d->r;
    static uint8_t data[MOST], back[MOST];
    static uint32_t keep[MOST];
    (void)state;
    r->whole_dwords = false;
    for (unsigned round = 0; round < 40; round++) {
        uint32_t bytes = 512 * (1 + rnd(r) % 200), holes = 0;
        sqe s = io(1, round, bytes / 512);
        pattern(d, data, bytes);
        sgl_scatter(d, &s, bytes, true, keep);
        for (uint32_t i = 0; i < bytes; i++)
            r->mem[keep[i]] = data[i];
        assert_int_equal(drv_do(d, 1, &s).status, 0);
        assert_int_equal(move(d, false, round, bytes, 0, back), 0); /* by PRPs */
        assert_memory_equal(back, data, bytes);
        s = io(2, round, bytes / 512);
        sgl_scatter(d, &s, bytes, false, keep);
        memset(r->mem + MEM_DATA, 0x99, 0x200000);
        assert_int_equal(drv_do(d, 1, &s).status, 0);
        for (uint32_t i = 0; i < bytes; i++) {
            holes += !keep[i];
            if (keep[i] && r->mem[keep[i]] != data[i])
                fail();
            if (keep[i])
                r->mem[keep[i]] = 0x99;
        }
        assert_true(holes || bytes < 20000);
        for (uint32_t i = 0; i < 0x200000; i++) { /* and nothing else was written */
            if (r->mem[MEM_DATA + i] != 0x99)
                fail();
        }
    }
    assert_int_equal(model(d)->count.sgl_commands, 80);
    drv_close(d);
}

/* A data block alone, one that is longer than the data, a dataset's ranges by SGL. */
static void test_sgl_in_the_command(void **state)
{
    driver *d = drv_up(1);
    uint8_t *mem = d->r.mem + MEM_DATA;
    sqe s = io(1, 5, 8);
    (void)state;
    memset(mem, 0x3c, 4096);
    sgl_command(&s, DATA_BLOCK, MEM_LOW + MEM_DATA, 4096);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    s = io(2, 5, 8);
    memset(mem, 0, 8192);
    sgl_command(&s, DATA_BLOCK, MEM_LOW + MEM_DATA, 8192);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(mem[4095], 0x3c);
    assert_int_equal(mem[4096], 0);
    s = command(9, 1);
    s.dw[11] = 4;
    memset(mem, 0, 16);
    dxpu_put_le32(mem + 4, 8);
    dxpu_put_le64(mem + 8, 5);
    sgl_command(&s, DATA_BLOCK, MEM_LOW + MEM_DATA, 16);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    s = io(2, 5, 8);
    mem[77] = 1;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(mem[77], 0);
    drv_close(d);
}

static uint16_t sgl_try(driver *d, uint8_t opcode, unsigned type, uint64_t address, uint32_t bytes)
{
    sqe s = io(opcode, 0, 1);
    sgl_command(&s, type, address, bytes);
    return drv_do(d, 1, &s).status;
}

static void test_sgl_errors(void **state)
{
    const uint64_t data = MEM_LOW + MEM_DATA, list = MEM_LOW + SGL_LISTS;
    driver *d = drv_up(1);
    uint8_t *p = d->r.mem + SGL_LISTS;
    sqe s = command(6, 0);
    (void)state;
    assert_int_equal(sgl_try(d, 2, DATA_BLOCK, data, 511), NVME_SGL_LENGTH | NVME_DNR);
    assert_int_equal(sgl_try(d, 2, DATA_BLOCK, data, 512), 0);
    assert_int_equal(sgl_try(d, 2, DATA_BLOCK, UINT64_MAX - 510, 512), NVME_SGL_LENGTH | NVME_DNR);
    assert_int_equal(sgl_try(d, 2, BIT_BUCKET, 0, 512), 0);
    assert_int_equal(sgl_try(d, 1, BIT_BUCKET, 0, 512), NVME_SGL_LENGTH | NVME_DNR);
    assert_int_equal(sgl_try(d, 2, KEYED, data, 512), NVME_SGL_TYPE | NVME_DNR);
    assert_int_equal(sgl_try(d, 2, LAST_SEGMENT, list, 0), NVME_SGL_SEGMENT | NVME_DNR);
    assert_int_equal(sgl_try(d, 2, LAST_SEGMENT, list, 17), NVME_SGL_SEGMENT | NVME_DNR);
    assert_int_equal(sgl_try(d, 2, SEGMENT, list + 4, 16), NVME_SGL_SEGMENT | NVME_DNR);
    sgl_put(p, DATA_BLOCK, data, 512);
    assert_int_equal(sgl_try(d, 2, LAST_SEGMENT, list, 16), 0);
    assert_int_equal(sgl_try(d, 2, SEGMENT, list, 16), NVME_SGL_SEGMENT | NVME_DNR);
    sgl_put(p, LAST_SEGMENT, list + 64, 16);
    sgl_put(p + 16, DATA_BLOCK, data, 512);
    assert_int_equal(sgl_try(d, 2, SEGMENT, list, 32), NVME_SGL_COUNT | NVME_DNR);
    assert_int_equal(sgl_try(d, 2, LAST_SEGMENT, list, 16), NVME_SGL_SEGMENT | NVME_DNR);
    sgl_put(p, SEGMENT, list, 16); /* leads to itself, for ever */
    assert_int_equal(sgl_try(d, 2, SEGMENT, list, 16), NVME_SGL_COUNT | NVME_DNR);
    assert_int_equal(sgl_try(d, 2, LAST_SEGMENT, 0x777700000000u, 16), NVME_TRANSFER_ERROR);
    sgl_put(p, DATA_BLOCK, data, 512);
    p[15] |= 1; /* an offset, not an address */
    assert_int_equal(sgl_try(d, 2, LAST_SEGMENT, list, 16), NVME_SGL_TYPE | NVME_DNR);
    sgl_command(&s, DATA_BLOCK, data, 4096); /* PRPs only on the admin queue */
    s.dw[10] = 1;
    assert_int_equal(drv_do(d, 0, &s).status, NVME_INVALID_FIELD | NVME_DNR);
    assert_int_equal(identify(d, 1, 0), 0);
    assert_int_equal(dxpu_get_le32(d->r.mem + MEM_DATA + 536), 0x00050001);
    drv_close(d);
}

/* More pieces than a command may have. */
static void test_sgl_too_many_pieces(void **state)
{
    driver *d = drv_up(1);
    uint16_t status[2];
    (void)state;
    d->r.whole_dwords = false;
    for (unsigned round = 0; round < 2; round++) {
        sqe s = io(2, 0, 64);
        uint32_t count = NVME_RANGES + round, left = 64 * 512;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t part = i + 1 < count ? 1 : left;
            sgl_put(d->r.mem + SGL_LISTS + (size_t)i * 16, DATA_BLOCK, MEM_LOW + MEM_DATA + i * 2,
                    part);
            left -= part;
        }
        sgl_command(&s, LAST_SEGMENT, MEM_LOW + SGL_LISTS, count * 16);
        status[round] = drv_do(d, 1, &s).status;
    }
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], NVME_SGL_COUNT | NVME_DNR);
    drv_close(d);
}

static void test_errors_of_dma(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    sqe s = io(1, 4, 8);
    uint8_t back[4096], zero[4096] = { 0 };
    result res;
    (void)state;
    memset(r->mem + MEM_DATA, 0x5a, 4096);
    s.dw[7] = 0x7777; /* data where the host has nothing */
    assert_int_equal(drv_do(d, 1, &s).status, NVME_TRANSFER_ERROR);
    s.dw[7] = 0;
    for (unsigned round = 0; round < 2; round++) {
        (void)drv_send(d, 1, &s);
        drv_ring(d, 1);
        while (model(d)->fn.tags.in_flight == 0 || model(d)->sq[1].busy) { /* the entry first */
            rc_look(r);
            assert_true(rc_answer_one(r));
        }
        r->poison = round == 0;
        r->status = round == 0 ? DXPU_CPL_SC : DXPU_CPL_CA;
        rc_run(r);
        r->poison = false;
        r->status = DXPU_CPL_SC;
        assert_true(drv_reap(d, 1, &res));
        assert_int_equal(res.status, NVME_TRANSFER_ERROR);
        drv_consumed(d, 1);
    }
    assert_int_equal(cfg_read(r, 0x04) >> 28, 0xb); /* parity, master abort, target abort */
    assert_int_equal(move(d, false, 4, sizeof back, 0, back), 0);
    assert_memory_equal(back, zero, sizeof zero); /* nothing of them was written */
    s = io(1, 4, 8);
    memset(r->mem + MEM_DATA, 0x5a, 4096);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(move(d, false, 4, sizeof back, 0, back), 0);
    assert_int_equal(back[77], 0x5a);
    drv_close(d);
}

static void test_errors_fetching_entries_are_fatal(void **state)
{
    driver *d = drv_up(1);
    sqe s = io(2, 0, 1);
    unsigned reads;
    (void)state;
    d->r.status = DXPU_CPL_UR;
    (void)drv_send(d, 1, &s);
    drv_ring(d, 1);
    rc_run(&d->r);
    assert_int_equal(reg32(&d->r, 0x1c), 3);
    d->r.status = DXPU_CPL_SC;
    reads = d->r.reads;
    drv_ring(d, 1);
    rc_run(&d->r);
    assert_int_equal(d->r.reads, reads);
    reg_set32(&d->r, 0x14, 0);
    drv_enable(d);
    drv_queues(d, 1);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    drv_close(d);
}

/* No completion: the command fails after the time that Device Control 2 says, not before. */
static void test_errors_completion_timeout(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    sqe s = io(1, 0, 8);
    result res;
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        uint64_t now = (round + 1) * 1000000000u;
        cfg_write_be(r, 0x88, round ? 0x10 : 0x6, 0x1); /* 210 ms; then none */
        nvme_kind.tick(r->dev, now);
        (void)drv_send(d, 1, &s);
        drv_ring(d, 1);
        while (model(d)->fn.tags.in_flight == 0 || model(d)->sq[1].busy) {
            rc_look(r);
            assert_true(rc_answer_one(r));
        }
        r->hold = true;
        nvme_kind.tick(r->dev, now + 209999999u);
        rc_run(r);
        assert_false(drv_reap(d, 1, &res));
        nvme_kind.tick(r->dev, now + 400000000u);
        rc_run(r);
        assert_int_equal(drv_reap(d, 1, &res), round == 0);
        if (round == 0) {
            assert_int_equal(res.status, NVME_TRANSFER_ERROR);
            rc_forget(&d->r);
        }
        r->hold = false;
        nvme_kind.tick(r->dev, now + 900000000u); /* tags have rested */
        rc_run(r);
    }
    assert_true(drv_reap(d, 1, &res));
    assert_int_equal(res.status, 0);
    assert_true(model(d)->fn.count.completion_timeouts >= 1);
    drv_close(d);
}

/* The range that is programmed, unless whoever owns the slot wants more patience. */
static void test_s110_completion_timeout_ranges(void **state)
{
    static const struct {
        uint8_t code;
        uint32_t us;
    } rows[] = { { 0x0, 50000 },   { 0x1, 100 },      { 0x2, 10000 },
                 { 0x5, 55000 },   { 0x6, 210000 },   { 0x9, 900000 },
                 { 0xa, 3500000 }, { 0xd, 13000000 }, { 0xe, 64000000 } };
    driver *d = drv_up(0);
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cfg_write_be(&d->r, 0x88, rows[i].code, 0x1);
        model(d)->fn.set.timeout_ns = 0;
        assert_int_equal(fn_timeout_ns(&model(d)->fn), rows[i].us * (uint64_t)1000);
        model(d)->fn.set.timeout_ns = 1000000000;
        assert_int_equal(fn_timeout_ns(&model(d)->fn),
                         rows[i].us > 1000000 ? rows[i].us * (uint64_t)1000 : 1000000000);
        model(d)->fn.set.timeout_ns = DXPU_NEVER;
        assert_true(fn_timeout_ns(&model(d)->fn) == DXPU_NEVER);
        cfg_write_be(&d->r, 0x88, rows[i].code | 0x10, 0x1);
        model(d)->fn.set.timeout_ns = 0;
        assert_true(fn_timeout_ns(&model(d)->fn) == DXPU_NEVER);
    }
    drv_close(d);
}

/* A poisoned write changes nothing; a message means nothing; reads in flight show as pending. */
static void test_poison_messages_pending(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    sqe s = io(2, 0, 1);
    uint8_t b[4] = { 0x55, 0, 0, 0 };
    dxpu_tlp t = rc_request(r, DXPU_TLP_MWR, BAR + NVME_TABLE + 8, 4);
    (void)state;
    t.payload.ptr = b;
    t.payload.len = 4;
    t.ep = true;
    rc_give(r, &t);
    assert_int_equal(reg32(r, NVME_TABLE + 8), 0);
    t.ep = false;
    rc_give(r, &t);
    assert_int_equal(reg32(r, NVME_TABLE + 8), 0x55);
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.header_dw = 4;
    t.message_code = 0x19; /* PME_Turn_Off */
    t.message_routing = DXPU_MSG_BROADCAST;
    rc_give(r, &t);
    assert_int_equal(model(d)->fn.count.messages, 1);
    assert_false(cfg_read(r, 0x68) & 0x00200000);
    r->hold = true;
    (void)drv_send(d, 1, &s);
    drv_ring(d, 1);
    rc_look(r);
    assert_true(cfg_read(r, 0x68) & 0x00200000);
    r->hold = false;
    rc_run(r);
    assert_false(cfg_read(r, 0x68) & 0x00200000);
    drv_close(d);
}

enum { AER = 0x100, DEVCTL = 0x68 };

/* A write that is not accepted. */
static void write_nowhere(rc *r)
{
    uint8_t b[4] = { 1, 2, 3, 4 };
    mmio_write(r, BAR + NVME_BAR_BYTES, b, 4);
}

static void test_aer_registers(void **state)
{
    driver *d = drv_up(0);
    rc *r = &d->r;
    (void)state;
    assert_int_equal(cfg_read(r, AER + 0x04), 0);
    assert_int_equal(cfg_read(r, AER + 0x08), 0);
    assert_int_equal(cfg_read(r, AER + 0x0c), 0x00462030);
    assert_int_equal(cfg_read(r, AER + 0x10), 0);
    assert_int_equal(cfg_read(r, AER + 0x14), 0x2000);
    cfg_write(r, AER + 0x08, 0xffffffff);
    assert_int_equal(cfg_read(r, AER + 0x08), 0x00155010);
    cfg_write(r, AER + 0x08, 0);
    cfg_write(r, AER + 0x0c, 0);
    assert_int_equal(cfg_read(r, AER + 0x0c), 0x00422020);
    cfg_write(r, AER + 0x14, 0xffffffff);
    assert_int_equal(cfg_read(r, AER + 0x14), 0x31c1);
    cfg_write(r, AER + 0x18, 0xffffffff);
    assert_int_equal(cfg_read(r, AER + 0x18), 0);
    drv_close(d);
}

/* Status is cleared by writing ones, the first error keeps the log, masks keep it out. */
static void test_aer_log(void **state)
{
    driver *d = drv_up(0);
    rc *r = &d->r;
    (void)state;
    cfg_write(r, AER + 0x08, 0x00100000); /* masked: noted, not logged */
    write_nowhere(r);
    assert_int_equal(cfg_read(r, AER + 0x04), 0x00100000);
    assert_int_equal(cfg_read(r, AER + 0x1c), 0);
    cfg_write(r, AER + 0x08, 0);
    cfg_write(r, AER + 0x04, 0x00100000);
    assert_int_equal(cfg_read(r, AER + 0x04), 0);
    write_nowhere(r);
    assert_int_equal(cfg_read(r, AER + 0x18), 20);
    assert_int_equal(cfg_read(r, AER + 0x1c), 0x40000001); /* MWr, one dword */
    assert_int_equal(cfg_read(r, AER + 0x20), 0x0000000f);
    assert_int_equal(cfg_read(r, AER + 0x24), BAR + NVME_BAR_BYTES);
    assert_int_equal(cfg_read(r, AER + 0x28), 0);
    mmio_write(r, BAR + NVME_BAR_BYTES + 64, (const uint8_t *)"abcd", 4);
    assert_int_equal(cfg_read(r, AER + 0x24), BAR + NVME_BAR_BYTES); /* the first one's still */
    cfg_write(r, AER + 0x04, 0xffffffff);
    mmio_write(r, BAR + NVME_BAR_BYTES + 64, (const uint8_t *)"abcd", 4);
    assert_int_equal(cfg_read(r, AER + 0x24), BAR + NVME_BAR_BYTES + 64);
    drv_close(d);
}

static void test_aer_messages(void **state)
{
    driver *d = drv_up(0);
    rc *r = &d->r;
    (void)state;
    write_nowhere(r);
    assert_int_equal(r->errors[1], 0);    /* reporting is disabled */
    cfg_write_be(r, DEVCTL, 0x2007, 0x3); /* errors, but not unsupported requests */
    write_nowhere(r);
    assert_int_equal(r->errors[1], 0);
    cfg_write_be(r, DEVCTL, 0x200f, 0x3);
    write_nowhere(r);
    assert_int_equal(r->errors[1], 1);
    cfg_write(r, AER + 0x08, 0x00100000); /* masked */
    write_nowhere(r);
    assert_int_equal(r->errors[1], 1);
    cfg_write(r, AER + 0x08, 0);
    cfg_write(r, AER + 0x0c, 0x00562030); /* fatal */
    write_nowhere(r);
    assert_int_equal(r->errors[1], 1);
    assert_int_equal(r->errors[2], 1);
    assert_int_equal(cfg_read(r, DEVCTL) >> 16 & 0xf, 0xe);
    cfg_write(r, AER + 0x0c, 0x00462030);
    assert_int_equal(mmio_read_status(r, BAR - 4, 4), DXPU_CPL_UR);
    assert_int_equal(r->errors[0], 0); /* advisory, which is masked after power-up */
    assert_int_equal(cfg_read(r, AER + 0x10), 0x2000);
    cfg_write(r, AER + 0x14, 0);
    assert_int_equal(mmio_read_status(r, BAR - 4, 4), DXPU_CPL_UR);
    assert_int_equal(r->errors[0], 1);
    cfg_write_be(r, DEVCTL, 0x2000, 0x3);
    cfg_write_be(r, 0x04, 0x0106, 0x3); /* SERR# asks for them as well */
    assert_false(cfg_read(r, 0x04) & 0x40000000);
    write_nowhere(r);
    assert_int_equal(r->errors[1], 2);
    assert_true(cfg_read(r, 0x04) & 0x40000000); /* signaled system error */
    drv_close(d);
}

/* Poison, too much payload, unexpected completions, no completion. */
static void test_aer_kinds(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    uint8_t data[256] = { 0 };
    dxpu_tlp t = rc_request(r, DXPU_TLP_MWR, BAR + NVME_TABLE, 256), read;
    sqe s = io(1, 0, 8);
    (void)state;
    cfg_write_be(r, DEVCTL, 0x200f, 0x3);
    t.payload.ptr = data;
    t.payload.len = 256;
    rc_give(r, &t);
    rc_look(r);
    assert_int_equal(cfg_read(r, AER + 0x04), 0x00040000);
    assert_int_equal(r->errors[2], 1);
    assert_int_equal(reg32(r, NVME_TABLE + 24), 1); /* it did nothing */
    cfg_write(r, AER + 0x04, 0xffffffff);
    t = rc_request(r, DXPU_TLP_MWR, BAR + NVME_TABLE, 128);
    t.payload.ptr = data;
    t.payload.len = 128;
    t.ep = true;
    rc_give(r, &t);
    rc_look(r);
    assert_int_equal(cfg_read(r, AER + 0x04), 0x1000);
    assert_int_equal(r->errors[1], 1);
    cfg_write(r, AER + 0x04, 0xffffffff);
    t = cfg_tlp(r, DXPU_TLP_CFGWR0, 0x3c);
    t.payload.ptr = (const uint8_t *)"\x55\x55\x55\x55";
    t.payload.len = 4;
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_SC);
    assert_int_equal(cfg_read(r, 0x3c), 0x55);
    t.payload.ptr = data;
    t.ep = true;
    cfg_write(r, AER + 0x14, 0);
    assert_int_equal(rc_ask(r, &t), DXPU_CPL_UR);
    assert_int_equal(cfg_read(r, 0x3c), 0x55); /* it is as it was */
    assert_int_equal(cfg_read(r, AER + 0x04), 0x1000);
    assert_int_equal(r->errors[0], 1); /* advisory: the completion reports it */
    cfg_write(r, AER + 0x04, 0xffffffff);
    read = rc_request(r, DXPU_TLP_MRD, MEM_LOW, 64);
    read.requester = BDF;
    dxpu_tlp_completion(&read, 0, DXPU_CPL_SC, &t);
    t.payload.ptr = data;
    t.payload.len = 64;
    t.length_dw = 16;
    rc_give(r, &t);
    rc_look(r);
    assert_int_equal(cfg_read(r, AER + 0x04), 0x00010000);
    assert_int_equal(r->errors[0], 2);
    cfg_write(r, AER + 0x04, 0xffffffff);
    r->hold = true;
    (void)drv_send(d, 1, &s);
    drv_ring(d, 1);
    nvme_kind.tick(r->dev, 1000000000);
    rc_look(r);
    assert_int_equal(cfg_read(r, AER + 0x04), 0x4000);
    assert_int_equal(r->errors[1], 2);
    drv_close(d);
}

static void busy(driver *d)
{
    rc *r = &d->r;
    for (unsigned i = 0; i < 16; i++) {
        sqe s = io(i & 1 ? 1 : 2, i * 16, 16);
        s.dw[6] = MEM_LOW + MEM_DATA + i * 8192;
        s.dw[8] = s.dw[6] + 4096;
        (void)drv_send(d, 1, &s);
    }
    drv_ring(d, 1);
    while (model(d)->fn.tags.in_flight == 0 || model(d)->sq[1].busy) {
        rc_look(r);
        assert_true(rc_answer_one(r));
    }
    rc_look(r);
    assert_true(r->answers_waiting > 0);
}

/* Completions that are larger than software allowed: the command fails, and nothing is stuck. */
static void test_aer_large_completions(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    sqe s = io(1, 0, 8);
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        r->mps = round ? 512 : 128;
        assert_int_equal(drv_do(d, 1, &s).status, round ? NVME_TRANSFER_ERROR : 0);
        assert_int_equal(cfg_read(r, AER + 0x04), round ? 0x00040000 : 0);
        assert_int_equal(model(d)->fn.tags.in_flight, 0);
    }
    drv_close(d);
}

/* What was asked before a reset may be answered with what was allowed then. */
static void test_aer_completions_of_earlier_requests(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    (void)state;
    r->mps = 256;
    cfg_write_be(r, DEVCTL, 0x2830, 0x3);
    busy(d);
    cfg_write_be(r, DEVCTL, 0x8000, 0x3); /* FLR */
    rc_run(r);
    assert_int_equal(cfg_read(r, AER + 0x04), 0);
    assert_int_equal(model(d)->fn.tags.in_flight, 0);
    drv_close(d);
}

/* Errors outlive every reset but power. */
static void test_aer_is_sticky(void **state)
{
    driver *d = drv_up(0);
    rc *r = &d->r;
    dxpu_event e = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
    (void)state;
    write_nowhere(r);
    cfg_write(r, AER + 0x14, 0);
    cfg_write_be(r, DEVCTL, 0x8000, 0x3); /* FLR */
    assert_int_equal(cfg_read(r, AER + 0x04), 0x00100000);
    nvme_kind.event(r->dev, &e);
    assert_int_equal(cfg_read(r, AER + 0x04), 0x00100000);
    assert_int_equal(cfg_read(r, AER + 0x1c), 0x40000001);
    assert_int_equal(cfg_read(r, AER + 0x14), 0);
    nvme_kind.reset(r->dev);
    assert_int_equal(cfg_read(r, AER + 0x04), 0);
    assert_int_equal(cfg_read(r, AER + 0x1c), 0);
    assert_int_equal(cfg_read(r, AER + 0x14), 0x2000);
    drv_close(d);
}

static void test_errors_command_id_twice(void **state)
{
    driver *d = drv_up(0);
    sqe s = command(0x0c, 0);
    uint16_t cid = drv_send(d, 0, &s);
    result res;
    (void)state;
    d->cid--;
    s = command(0x0a, 0);
    s.dw[10] = 6;
    assert_int_equal(drv_send(d, 0, &s), cid);
    drv_ring(d, 0);
    rc_run(&d->r);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.status, NVME_CID_CONFLICT | NVME_DNR);
    drv_close(d);
}

static void test_doorbell_abuse(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    unsigned reads = r->reads;
    sqe aer = command(0x0c, 0);
    result res;
    (void)state;
    (void)drv_send(d, 0, &aer);
    (void)drv_send(d, 0, &aer);
    drv_ring(d, 0);
    rc_run(r);
    reads = r->reads;
    reg_set32(r, NVME_DOORBELLS + 7 * 8, 1); /* no such queue */
    rc_run(r);
    assert_int_equal(r->reads, reads);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.dw0, 0x010000);
    reg_set32(r, NVME_DOORBELLS + 8, DEPTH); /* beyond the queue: kept until the log is read */
    rc_run(r);
    assert_false(drv_reap(d, 0, &res));
    assert_int_equal(model(d)->sq[1].tail, 0);
    reg_set32(r, NVME_DOORBELLS + 8 + 4, 1); /* consumes what was never posted */
    assert_int_equal(model(d)->cq[1].head, 0);
    drv_consumed(d, 0);
    aer = command(0x02, 0);
    aer.dw[10] = 1 | 15u << 16;
    (void)drv_send(d, 0, &aer);
    drv_ring(d, 0);
    rc_run(r);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.dw0, 0x010100); /* the second event */
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.dw0, 0);
    drv_consumed(d, 0);
    for (uint32_t at = NVME_DOORBELLS; at < NVME_TABLE; at += 4) /* nothing worse happens */
        reg_set32(r, at, 0xffffffff);
    reg_set32(r, NVME_DOORBELLS, d->q[0].tail);
    assert_int_equal(identify(d, 1, 0), 0);
    drv_close(d);
}

/* ==== 9  Events, aborts, interrupts =========================================================== */

static void test_event_limit_and_temperature(void **state)
{
    driver *d = drv_up(0);
    sqe aer = command(0x0c, 0);
    result res;
    uint16_t first = (uint16_t)(d->cid + 1);
    (void)state;
    for (unsigned i = 0; i < NVME_EVENT_COMMANDS + 1; i++)
        (void)drv_send(d, 0, &aer);
    drv_ring(d, 0);
    rc_run(&d->r);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.status, NVME_EVENT_LIMIT | NVME_DNR);
    assert_false(drv_reap(d, 0, &res));
    drv_consumed(d, 0);
    assert_int_equal(feature(d, true, 4, 300, 0).status, 0); /* events are off */
    assert_false(drv_reap(d, 0, &res));
    assert_int_equal(feature(d, true, 4, 400, 0).status, 0);
    assert_int_equal(feature(d, true, 11, 2, 0).status, 0);
    sqe s = command(0x09, 0);
    s.dw[10] = 4;
    s.dw[11] = 300;
    (void)drv_send(d, 0, &s);
    drv_ring(d, 0);
    rc_run(&d->r);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.cid, first);
    assert_int_equal(res.dw0, 0x020101);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.cid, d->cid);
    drv_consumed(d, 0);
    assert_int_equal(admin(d, 0x02, 0, 2 | 127u << 16, 0), 0);
    assert_int_equal(d->r.mem[MEM_DATA], 2); /* critical warning: temperature */
    drv_close(d);
}

static void test_abort(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    sqe s = io(1, 0, 8);
    sqe abort_it = command(0x08, 0);
    result res;
    uint16_t cid = drv_send(d, 1, &s);
    uint8_t back[4096], zero[4096] = { 0 };
    (void)state;
    memset(r->mem + MEM_DATA, 0x77, 4096);
    drv_ring(d, 1);
    while (model(d)->fn.tags.in_flight == 0 || model(d)->sq[1].busy) {
        rc_look(r);
        assert_true(rc_answer_one(r));
    }
    rc_look(r); /* its data is under way */
    abort_it.dw[10] = 1 | (uint32_t)cid << 16;
    (void)drv_send(d, 0, &abort_it);
    drv_ring(d, 0);
    rc_answer_last(r);
    rc_run(r);
    assert_true(drv_reap(d, 1, &res));
    assert_int_equal(res.cid, cid);
    assert_int_equal(res.status, NVME_ABORTED);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.status, 0);
    assert_int_equal(res.dw0, 0);
    drv_consumed(d, 0);
    drv_consumed(d, 1);
    assert_int_equal(drv_do(d, 0, &abort_it).dw0, 1); /* it is gone */
    assert_int_equal(move(d, false, 0, sizeof back, 0, back), 0);
    assert_memory_equal(back, zero, sizeof zero);
    s = command(0x0c, 0);
    cid = drv_send(d, 0, &s);
    drv_ring(d, 0);
    rc_run(r);
    abort_it.dw[10] = (uint32_t)cid << 16;
    (void)drv_send(d, 0, &abort_it);
    drv_ring(d, 0);
    rc_run(r);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.cid, cid);
    assert_int_equal(res.status, NVME_ABORTED);
    drv_close(d);
}

static void test_delete_queue_with_commands(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    sqe s = io(1, 0, 8), del = command(0x00, 0);
    unsigned done = 0;
    result res;
    (void)state;
    for (unsigned i = 0; i < 8; i++)
        (void)drv_send(d, 1, &s);
    drv_ring(d, 1);
    while (model(d)->fn.tags.in_flight == 0 || model(d)->sq[1].busy) {
        rc_look(r);
        assert_true(rc_answer_one(r));
    }
    rc_look(r);
    del.dw[10] = 1;
    (void)drv_send(d, 0, &del);
    drv_ring(d, 0);
    rc_answer_last(r);
    rc_run(r);
    assert_true(drv_reap(d, 0, &res));
    assert_int_equal(res.status, 0);
    drv_consumed(d, 0);
    while (drv_reap(d, 1, &res)) {
        assert_int_equal(res.status, NVME_SQ_DELETED);
        done++;
    }
    assert_int_equal(done, 8);
    assert_int_equal(admin(d, 0x04, 0, 1, 0), 0);
    assert_int_equal(model(d)->free_count[1], NVME_IO_COMMANDS);
    drv_queues(d, 1);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    drv_close(d);
}

static void test_msix_masks(void **state)
{
    driver *d = drv_up(2);
    rc *r = &d->r;
    sqe s = io(0, 0, 1);
    (void)state;
    (void)drv_do(d, 1, &s);
    assert_int_equal(r->msi_count[1], 1);
    reg_set32(r, NVME_TABLE + 16 + 12, 1); /* the vector */
    (void)drv_do(d, 1, &s);
    (void)drv_do(d, 1, &s);
    (void)drv_do(d, 2, &s);
    assert_int_equal(r->msi_count[1], 1);
    assert_int_equal(r->msi_count[2], 1);
    assert_int_equal(reg32(r, NVME_PBA), 2);
    reg_set32(r, NVME_PBA, 0xffffffff); /* is read-only */
    assert_int_equal(reg32(r, NVME_PBA), 2);
    reg_set32(r, NVME_TABLE + 16 + 12, 0);
    assert_int_equal(r->msi_count[1], 2); /* once for both */
    assert_int_equal(reg32(r, NVME_PBA), 0);
    cfg_write_be(r, 0x50, 0xc0000000u, 0xc); /* the function */
    (void)drv_do(d, 1, &s);
    (void)drv_do(d, 2, &s);
    assert_int_equal(reg32(r, NVME_PBA), 6);
    cfg_write_be(r, 0x50, 0x80000000u, 0xc);
    assert_int_equal(r->msi_count[1], 3);
    assert_int_equal(r->msi_count[2], 2);
    cfg_write_be(r, 0x50, 0, 0xc); /* off */
    (void)drv_do(d, 1, &s);
    assert_int_equal(r->msi_count[1], 3);
    assert_int_equal(reg32(r, NVME_PBA), 0);
    drv_close(d);
}

static void test_interrupts_off_for_a_queue(void **state)
{
    driver *d = drv_up(0);
    sqe s = command(0x05, 0);
    (void)state;
    queue_restart(&d->q[1], DEPTH);
    s.dw[6] = (uint32_t)cq_address(1);
    s.dw[10] = (DEPTH - 1u) << 16 | 1;
    s.dw[11] = 1u << 16 | 1;
    assert_int_equal(drv_do(d, 0, &s).status, 0);
    assert_int_equal(make_sq(d, 1, DEPTH, 1), 0);
    s = io(0, 0, 1);
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    assert_int_equal(d->r.msi_count[1], 0);
    assert_true(d->r.msi_count[0] > 0);
    drv_close(d);
}

/* ==== 10  Resets ============================================================================== */

enum { NO_RESET, CONTROLLER_RESET, FUNCTION_RESET, HOT_RESET, POWER_RESET };

static void do_reset(driver *d, unsigned kind)
{
    dxpu_event e;
    memset(&e, 0, sizeof e);
    e.type = DXPU_EVENT_HOT_RESET;
    e.flags = DXPU_EVENT_ON;
    if (kind == CONTROLLER_RESET)
        reg_set32(&d->r, 0x14, 0);
    else if (kind == FUNCTION_RESET)
        cfg_write_be(&d->r, 0x68, 0x8000, 0x3);
    else if (kind == HOT_RESET)
        nvme_kind.event(d->r.dev, &e);
    else if (kind == POWER_RESET)
        nvme_kind.reset(d->r.dev);
}

/* After a reset nothing is read, written or signalled, whatever was in flight. */
static void test_reset_during_io(void **state)
{
    (void)state;
    for (unsigned kind = NO_RESET; kind <= POWER_RESET; kind++) {
        driver *d = drv_up(1);
        rc *r = &d->r;
        unsigned reads, writes;
        busy(d);
        do_reset(d, kind);
        reads = r->reads;
        writes = r->writes;
        rc_run(r);
        nvme_kind.tick(r->dev, 1000);
        if (kind == NO_RESET) {
            assert_true(r->reads > reads);
            assert_true(r->writes > writes);
        } else {
            assert_int_equal(r->reads, reads);
            assert_int_equal(r->writes, writes);
            assert_int_equal(model(d)->fn.tags.in_flight, 0);
            assert_int_equal(model(d)->buffer_bytes, 0);
        }
        memset(r->in_flight, 0, sizeof r->in_flight);
        if (kind == NO_RESET)
            reg_set32(r, 0x14, 0);
        r->mps = 128;
        drv_boot(d, 1);
        try_sizes(d);
        drv_close(d);
    }
}

static void test_reset_keeps_data_only(void **state)
{
    (void)state;
    for (unsigned kind = CONTROLLER_RESET; kind <= POWER_RESET; kind++) {
        driver *d = drv_up(1);
        rc *r = &d->r;
        uint8_t data[4096], back[4096];
        pattern(d, data, sizeof data);
        assert_int_equal(move(d, true, 7, sizeof data, 0, data), 0);
        assert_int_equal(feature(d, true, 6, 0, 0).status, 0);
        cfg_write_be(r, 0x3c, 9, 1);
        do_reset(d, kind);
        assert_int_equal(cfg_read(r, 0x3c), kind == CONTROLLER_RESET ? 9 : 0);
        assert_int_equal(cfg_read(r, 0x04) & 6, kind == CONTROLLER_RESET ? 6 : 0);
        assert_int_equal(r->cpl.completer, kind < HOT_RESET ? BDF : 0);
        drv_enumerate(d);
        assert_int_equal(reg32(r, 0x1c), 0);
        assert_int_equal(reg32(r, 0x24) != 0, kind == CONTROLLER_RESET);
        assert_int_equal(reg32(r, NVME_TABLE + 12), kind == CONTROLLER_RESET ? 0 : 1);
        drv_enable(d);
        drv_queues(d, 1);
        assert_int_equal(feature(d, false, 6, 0, 0).dw0, 1);
        assert_int_equal(move(d, false, 7, sizeof back, 0, back), 0);
        assert_memory_equal(back, data, sizeof data);
        drv_close(d);
    }
}

/* Without Bus Master Enable nothing leaves but completions; with it, all that waited does. */
static void test_bus_master_enable(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    sqe s = io(2, 0, 1);
    unsigned reads, writes;
    result res;
    (void)state;
    cfg_write_be(r, 0x04, 0x0002, 0x3);
    reads = r->reads;
    writes = r->writes;
    (void)drv_send(d, 1, &s);
    drv_ring(d, 1);
    rc_run(r);
    nvme_kind.tick(r->dev, 1000);
    rc_run(r);
    assert_int_equal(r->reads, reads);
    assert_int_equal(r->writes, writes);
    cfg_write_be(r, 0x04, 0x0006, 0x3);
    rc_run(r);
    assert_true(drv_reap(d, 1, &res));
    assert_int_equal(res.status, 0);
    assert_true(r->reads > reads && r->writes > writes);
    drv_consumed(d, 1);
    (void)drv_send(d, 1, &s); /* now in the middle of a command */
    drv_ring(d, 1);
    rc_look(r);
    cfg_write_be(r, 0x04, 0x0002, 0x3);
    reads = r->reads;
    writes = r->writes;
    rc_run(r);
    assert_int_equal(r->reads, reads);
    assert_int_equal(r->writes, writes);
    cfg_write_be(r, 0x04, 0x0006, 0x3);
    rc_run(r);
    assert_true(drv_reap(d, 1, &res));
    drv_close(d);
}

/* Another bus number: what is in flight keeps its requester, later requests have the new one. */
static void test_renumbered_while_busy(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    result res;
    unsigned done = 0;
    (void)state;
    busy(d);
    r->bdf = 0x0910;
    cfg_write_be(r, 0x3c, 0, 1);
    rc_run(r);
    while (drv_reap(d, 1, &res)) {
        assert_int_equal(res.status, 0);
        done++;
    }
    assert_int_equal(done, 16);
    assert_int_equal(model(d)->fn.tags.requester, 0x0910);
    drv_close(d);
}

static void test_unexpected_completions(void **state)
{
    driver *d = drv_up(1);
    rc *r = &d->r;
    dxpu_tlp t, read = rc_request(r, DXPU_TLP_MRD, MEM_LOW, 64);
    uint8_t data[64] = { 0 };
    uint64_t before = model(d)->fn.count.completions_refused;
    (void)state;
    read.requester = BDF;
    read.tag = 3;
    dxpu_tlp_completion(&read, 0, DXPU_CPL_SC, &t);
    t.payload.ptr = data;
    t.payload.len = 64;
    t.length_dw = 16;
    rc_give(r, &t);
    assert_int_equal(model(d)->fn.count.completions_refused, before + 1);
    assert_int_equal(identify(d, 1, 0), 0);
    drv_close(d);
}

/* ==== 11  Accesses under way =================================================================
   A disk that answers when the test says so: jobs wait until held_begin(), and are under way until
   held_end(). */

static struct {
    jobs_queue waiting, begun, done;
    unsigned submitted, quick; /* quick: may be tried in the loop */
} held;

static unsigned count_jobs(const jobs_queue *q)
{
    unsigned n = 0;
    for (const job *j = q->head; j; j = j->next)
        n++;
    return n;
}

static void held_append(jobs_queue *q, job *j)
{
    j->next = NULL;
    *q->tail = j;
    q->tail = &j->next;
}

static job *held_take(jobs_queue *q)
{
    job *j = q->head;
    if (j && (q->head = j->next) == NULL)
        q->tail = &q->head;
    return j;
}

static void held_submit(void *user, job *j)
{
    (void)user;
    held.submitted++;
    held.quick += j->quick != NULL;
    held_append(&held.waiting, j);
}

static job *held_reap(void *user)
{
    (void)user;
    return held_take(&held.done);
}

static bool held_cancel(void *user, job *j)
{
    job **at = &held.waiting.head;
    (void)user;
    while (*at && *at != j)
        at = &(*at)->next;
    if (!*at)
        return false;
    if ((*at = j->next) == NULL)
        held.waiting.tail = at;
    return true;
}

static void held_begin(void)
{
    job *j = held_take(&held.waiting);
    assert_non_null(j);
    held_append(&held.begun, j);
}

/* The first one that is under way, by its own time; then the device has its turn. */
static void held_end(driver *d)
{
    job *j = held_take(&held.begun);
    assert_non_null(j);
    j->run(j);
    held_append(&held.done, j);
    nvme_kind.tick(d->r.dev, d->r.seed += 1000);
    rc_run(&d->r);
}

static void held_settle(void *user)
{
    job *j;
    (void)user;
    while (held.waiting.head)
        held_begin();
    while ((j = held_take(&held.begun)) != NULL) {
        j->run(j);
        held_append(&held.done, j);
    }
}

static void held_rest(driver *d)
{
    while (held.waiting.head || held.begun.head) {
        if (!held.begun.head)
            held_begin();
        held_end(d);
    }
}

static const jobs held_jobs = { NULL, held_submit, held_reap, held_cancel, held_settle };

static void hold_jobs(void)
{
    memset(&held, 0, sizeof held);
    held.waiting.tail = &held.waiting.head;
    held.begun.tail = &held.begun.head;
    held.done.tail = &held.done.head;
    drv_jobs = &held_jobs;
}

static driver *drv_up_held(unsigned namespaces)
{
    driver *d;
    hold_jobs();
    d = drv_up_namespaces(2, namespaces);
    drv_jobs = NULL;
    return d;
}

/* Submit, and let it come to the medium. */
static uint16_t start(driver *d, unsigned q, const sqe *s)
{
    uint16_t cid = drv_send(d, q, s);
    drv_ring(d, q);
    rc_run(&d->r);
    return cid;
}

static void finished(driver *d, unsigned q, uint16_t cid, uint16_t status)
{
    result res;
    assert_true(drv_reap(d, q, &res));
    assert_int_equal(res.cid, cid);
    assert_int_equal(res.status, status);
    drv_consumed(d, q);
}

static void nothing_finished(driver *d, unsigned q)
{
    result res;
    assert_false(drv_reap(d, q, &res));
}

static sqe write_of(driver *d, uint64_t lba, uint8_t byte)
{
    sqe s = io(1, lba, 1);
    s.dw[6] += (uint32_t)lba * 4096; /* of its own memory */
    memset(d->r.mem + MEM_DATA + lba * 4096, byte, 512);
    return s;
}

/* Commands of one queue reach the medium together, and end as the medium says. */
static void test_s160_many_are_under_way(void **state)
{
    driver *d = drv_up_held(1);
    uint16_t cid[20];
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        sqe s = write_of(d, i, (uint8_t)(i + 1));
        cid[i] = start(d, 1, &s);
    }
    assert_int_equal(count_jobs(&held.waiting), 20);
    nothing_finished(d, 1);
    assert_int_equal(identify(d, 1, 0), 0); /* the controller goes on */
    for (unsigned i = 0; i < 20; i++)
        held_begin();
    for (unsigned i = 0; i < 20; i++) {
        held_end(d);
        finished(d, 1, cid[i], 0);
        assert_int_equal(model(d)->ns[0].store->bytes[i * 512], i + 1);
    }
    assert_int_equal(model(d)->buffer_bytes, 0);
    drv_close(d);
}

/* The cache goes off while a write is under way, whose data that flush may have missed. */
static void test_cache_off_beside_a_write(void **state)
{
    (void)state;
    for (unsigned off = 0; off < 2; off++) { /* 0: the control */
        driver *d = drv_up_held(1);
        sqe s = write_of(d, 0, 7), set = command(0x09, 0);
        uint16_t write, setting;
        job *slow;
        set.dw[10] = 6;
        set.dw[11] = !off;
        write = start(d, 1, &s);
        slow = held_take(&held.waiting);
        assert_non_null(slow);
        setting = start(d, 0, &set);
        held_rest(d);
        finished(d, 0, setting, 0);
        held_append(&held.begun, slow);
        held_end(d);
        assert_int_equal(count_jobs(&held.waiting), off);
        if (off) {
            assert_int_equal(((nvme_access *)held.waiting.head)->op, NVME_OP_SYNC);
            nothing_finished(d, 1);
        }
        held_rest(d);
        finished(d, 1, write, 0);
        assert_int_equal(model(d)->buffer_bytes, 0);
        drv_close(d);
    }
}

/* S-162: a write that was under way is over before the controller is ready again; one that had not
   begun never happens.  Their results are not visible. */
static void test_s162_resets_fence_writes(void **state)
{
    (void)state;
    for (unsigned kind = CONTROLLER_RESET; kind <= POWER_RESET; kind++) {
        driver *d = drv_up_held(1);
        const uint8_t *disk = model(d)->ns[0].store->bytes;
        sqe first = write_of(d, 0, 0xa1), second = write_of(d, 1, 0xa2);
        unsigned submitted;
        (void)start(d, 1, &first);
        (void)start(d, 1, &second);
        held_begin();
        do_reset(d, kind);
        rc_run(&d->r);
        assert_int_equal(count_jobs(&held.waiting), 0);
        assert_int_equal(count_jobs(&held.begun), 1);
        drv_enumerate(d);
        assert_int_equal(reg32(&d->r, 0x1c), kind == CONTROLLER_RESET ? 1 : 0); /* not over yet */
        if (kind != CONTROLLER_RESET) {
            memset(d->r.mem + MEM_QUEUES, 0, 0x200000);
            reg_set32(&d->r, 0x24, (ADMIN_DEPTH - 1) << 16 | (ADMIN_DEPTH - 1));
            reg_set64(&d->r, 0x28, sq_address(0));
            reg_set64(&d->r, 0x30, cq_address(0));
            reg_set32(&d->r, 0x14, 4u << 20 | 6u << 16 | 1);
            nvme_kind.tick(d->r.dev, 5000);
            assert_int_equal(reg32(&d->r, 0x1c), 0); /* nor does it begin */
            assert_int_equal(disk[0], 0);
        }
        submitted = held.submitted;
        held_end(d);
        assert_int_equal(disk[0], 0xa1);
        assert_int_equal(reg32(&d->r, 0x1c), kind == CONTROLLER_RESET ? 0 : 1);
        assert_int_equal(model(d)->buffer_bytes, 0);
        assert_int_equal(held.submitted, submitted);
        reg_set32(&d->r, 0x14, 0);
        assert_int_equal(reg32(&d->r, 0x1c), 0); /* the control: nothing is under way */
        drv_msix(d);
        drv_enable(d);
        drv_queues(d, 1);
        nothing_finished(d, 1);
        assert_int_equal(disk[512], 0);
        drv_close(d);
    }
}

/* A driver that writes CC.EN again before it has seen the end of the reset gets it afterwards. */
static void test_s162_enabled_before_the_reset_is_over(void **state)
{
    driver *d = drv_up_held(1);
    sqe s = write_of(d, 0, 1);
    (void)state;
    (void)start(d, 1, &s);
    held_begin();
    reg_set32(&d->r, 0x14, 0);
    reg_set32(&d->r, 0x14, 4u << 20 | 6u << 16 | 1);
    assert_int_equal(reg32(&d->r, 0x1c), 1);
    memset(d->r.mem + MEM_QUEUES, 0, 0x200000);
    queue_restart(&d->q[0], ADMIN_DEPTH);
    drv_ring(d, 0); /* there is no queue yet */
    held_end(d);
    assert_int_equal(reg32(&d->r, 0x1c), 1);
    assert_int_equal(identify(d, 1, 0), 0);
    drv_close(d);
}

/* S-162, M-65: a wipe begins when no write of before is under way. */
static void test_s162_a_wipe_waits_for_writes(void **state)
{
    driver *d = drv_up_held(1);
    const uint8_t *disk = model(d)->ns[0].store->bytes;
    sqe s = write_of(d, 0, 0x5e);
    int how = DEVICE_WIPING;
    (void)state;
    (void)start(d, 1, &s);
    held_begin();
    nvme_kind.reset(d->r.dev);
    assert_int_equal(nvme_kind.wipe(d->r.dev, true), DEVICE_WIPING);
    assert_int_equal(nvme_kind.wipe(d->r.dev, false), DEVICE_WIPING);
    assert_int_equal(held.submitted, 1);
    held_settle(NULL);
    assert_int_equal(disk[0], 0x5e); /* the secret came last */
    while (how == DEVICE_WIPING) {
        how = nvme_kind.wipe(d->r.dev, false);
        nvme_kind.reset(d->r.dev); /* changes nothing of it */
        held_settle(NULL);
    }
    assert_int_equal(how, DEVICE_WIPED);
    assert_int_equal(disk[0], 0);
    drv_close(d);
}

static uint16_t abort_of(driver *d, unsigned q, uint16_t cid, uint32_t *dw0)
{
    sqe s = command(0x08, 0);
    result res;
    s.dw[10] = q | (uint32_t)cid << 16;
    res = drv_do(d, 0, &s);
    *dw0 = res.dw0;
    return res.status;
}

/* The deletion of a queue is no command that could be aborted: it ends once, with the last command
   of its queue; whether the abort comes beside it or while it waits. */
static void test_abort_of_a_deletion(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        driver *d = drv_up_held(1);
        sqe write = write_of(d, 0, 7), delete_it = command(0x00, 0), abort_it = command(0x08, 0);
        uint16_t cid, aborter;
        result res;
        (void)start(d, 1, &write);
        held_begin();
        if (!waits)
            held_end(d);
        delete_it.dw[10] = 1;
        cid = drv_send(d, 0, &delete_it);
        abort_it.dw[10] = (uint32_t)cid << 16;
        aborter = drv_send(d, 0, &abort_it); /* fetched with it */
        drv_ring(d, 0);
        rc_run(&d->r);
        if (waits) {
            finished(d, 0, aborter, 0);
            held_end(d);
        } else {
            assert_true(drv_reap(d, 0, &res));
            assert_int_equal(res.cid, aborter);
            assert_int_equal(res.dw0, 1); /* not aborted */
        }
        finished(d, 0, cid, 0);
        assert_false(drv_reap(d, 0, &res));
        assert_int_equal(model(d)->free_count[0], NVME_ADMIN_COMMANDS);
        drv_close(d);
    }
}

/* What has not begun is aborted, what is long ends early, what is nearly over ends as it is. */
static void test_abort_of_accesses(void **state)
{
    driver *d = drv_up_held(1);
    sqe s = write_of(d, 0, 7), verify = io(0x0c, 0, 4096);
    uint16_t waits, runs, is_long;
    uint32_t dw0;
    (void)state;
    runs = start(d, 1, &s);
    held_begin();
    waits = start(d, 1, &s);
    assert_int_equal(abort_of(d, 1, waits, &dw0), 0);
    assert_int_equal(dw0, 0);
    finished(d, 1, waits, NVME_ABORTED);
    assert_int_equal(abort_of(d, 1, runs, &dw0), 0);
    assert_int_equal(dw0, 1);
    held_end(d);
    finished(d, 1, runs, 0);
    is_long = start(d, 1, &verify);
    held_begin();
    held_end(d); /* a MB of two */
    held_begin();
    assert_int_equal(abort_of(d, 1, is_long, &dw0), 0);
    assert_int_equal(dw0, 1);
    held_end(d);
    finished(d, 1, is_long, NVME_ABORTED);
    assert_int_equal(model(d)->free_count[1], NVME_IO_COMMANDS);
    drv_close(d);
}

/* A queue is gone when its last access is over; its number is not free before. */
static void test_delete_queue_with_accesses(void **state)
{
    driver *d = drv_up_held(1);
    sqe s = write_of(d, 0, 7), del = command(0x00, 0);
    uint16_t runs, waits, deletion;
    (void)state;
    runs = start(d, 1, &s);
    held_begin();
    waits = start(d, 1, &s);
    del.dw[10] = 1;
    deletion = start(d, 0, &del);
    nothing_finished(d, 0);
    finished(d, 1, waits, NVME_SQ_DELETED);
    nothing_finished(d, 1);
    assert_int_equal(make_sq(d, 1, DEPTH, 1), NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(drv_do(d, 0, &del).status, NVME_INVALID_QUEUE | NVME_DNR);
    assert_int_equal(admin(d, 0x04, 0, 1, 0), NVME_QUEUE_DELETION | NVME_DNR);
    held_end(d);
    finished(d, 1, runs, NVME_SQ_DELETED);
    finished(d, 0, deletion, 0);
    assert_int_equal(admin(d, 0x04, 0, 1, 0), 0);
    drv_queues(d, 1);
    drv_close(d);
}

/* The shutdown is complete when all is durable, and a reset forgets it. */
static void test_shutdown_takes_its_time(void **state)
{
    driver *d = drv_up_held(2);
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        reg_set32(&d->r, 0x14, reg32(&d->r, 0x14) | 1 << 14);
        assert_int_equal(reg32(&d->r, 0x1c) & 0xe, 0x4);
        held_begin();
        held_end(d);
        assert_int_equal(reg32(&d->r, 0x1c) & 0xe, 0x4); /* the second namespace */
        if (round)
            break;
        held_begin();
        held_end(d);
        assert_int_equal(reg32(&d->r, 0x1c) & 0xe, 0x8);
        reg_set32(&d->r, 0x14, 0);
        drv_enable(d);
    }
    reg_set32(&d->r, 0x14, 0);
    assert_int_equal(reg32(&d->r, 0x1c), 0);
    assert_int_equal(count_jobs(&held.waiting), 0);
    drv_close(d);
}

/* One that a driver asks for together with the reset, and then enables the controller: it is over,
   or forgotten, before the controller runs, and the next one flushes again. */
static void test_shutdown_overtaken_by_an_enabling(void **state)
{
    driver *d = drv_up_held(2);
    unsigned submitted;
    (void)state;
    reg_set32(&d->r, 0x14, 1 << 14); /* and CC.EN is 0 */
    assert_int_equal(reg32(&d->r, 0x1c), 0x4);
    held_begin();
    reg_set32(&d->r, 0x14, 4u << 20 | 6u << 16 | 1);
    held_end(d);
    held_rest(d);
    assert_int_equal(reg32(&d->r, 0x1c), 0x1);
    submitted = held.submitted;
    reg_set32(&d->r, 0x14, 4u << 20 | 6u << 16 | 1 << 14 | 1);
    assert_int_equal(reg32(&d->r, 0x1c), 0x5);
    held_rest(d);
    assert_int_equal(reg32(&d->r, 0x1c), 0x9);
    assert_int_equal(held.submitted - submitted, 2); /* one for each namespace */
    drv_close(d);
}

/* Format waits for what is under way in its namespace, and nothing else begins there meanwhile. */
static void test_format_has_its_namespace_to_itself(void **state)
{
    driver *d = drv_up_held(2);
    sqe s = write_of(d, 0, 7), rd = io(2, 0, 1), other = io_to(2, 2, 0, 1), fm = command(0x80, 1);
    sqe late = write_of(d, 1, 9), del = command(0x0d, 1);
    uint16_t wr, format, deletion, cid;
    (void)state;
    wr = start(d, 1, &s);
    held_begin();
    cid = drv_send(d, 2, &late); /* its data are on their way when the format begins */
    drv_ring(d, 2);
    while (model(d)->fn.tags.in_flight == 0 || model(d)->sq[2].busy) {
        rc_look(&d->r);
        assert_true(rc_answer_one(&d->r));
    }
    rc_look(&d->r);
    fm.dw[10] = 1;
    format = drv_send(d, 0, &fm);
    drv_ring(d, 0);
    rc_answer_last(&d->r);
    rc_run(&d->r);
    finished(d, 2, cid, NVME_FORMAT_IN_PROGRESS);
    nothing_finished(d, 0);
    assert_int_equal(count_jobs(&held.waiting), 0);
    assert_int_equal(drv_do(d, 1, &rd).status, NVME_FORMAT_IN_PROGRESS);
    cid = start(d, 2, &other); /* the control: another namespace */
    assert_int_equal(count_jobs(&held.waiting), 1);
    del.dw[10] = 1;
    deletion = start(d, 0, &del); /* its turn comes later */
    held_end(d);
    finished(d, 1, wr, 0);
    assert_int_equal(model(d)->ns[0].store->bytes[0], 7);
    assert_int_equal(model(d)->ns[0].is.block_log2, 9);
    held_begin();
    held_end(d);
    finished(d, 2, cid, 0);
    while (model(d)->ns[0].is.block_log2 == 9) {
        held_begin();
        held_end(d);
    }
    finished(d, 0, format, 0);
    assert_int_equal(model(d)->ns[0].store->bytes[0], 0);
    held_rest(d);
    finished(d, 0, deletion, 0);
    assert_int_equal(list_of(d, 0x10, 0), 2);
    drv_close(d);
}

/* ==== 12  The layout ========================================================================== */

static char layout_file[64];

static driver *drv_again(const char *path)
{
    driver *d = drv_open(path);
    snprintf(layout_file, sizeof layout_file, "%s.layout", path);
    drv_boot(d, 0);
    return d;
}

static size_t layout_text(char text[1024])
{
    FILE *f = fopen(layout_file, "r");
    size_t len;
    assert_non_null(f);
    len = fread(text, 1, 1023, f);
    text[len] = '\0';
    fclose(f);
    return len;
}

static void put_layout(const char *text, size_t len)
{
    FILE *f = fopen(layout_file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static bool fits(const char *path)
{
    driver *d = drv_open(path);
    bool good = nvme_kind.fits(d->r.dev);
    drv_close(d);
    return good;
}

/* S-163: what a host has made of its disk is there after the box was off. */
static void test_s163_the_layout_lasts(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX", uuid[16];
    driver *d = drv_up_file(path);
    uint8_t *p = d->r.mem + MEM_DATA;
    struct stat st;
    (void)state;
    snprintf(layout_file, sizeof layout_file, "%s.layout", path);
    assert_int_equal(stat(layout_file, &st), 0);
    assert_int_equal(unlink(layout_file), 0);
    assert_int_equal(admin(d, 0x80, 1, 1, 0), 0);
    assert_int_equal(stat(layout_file, &st), 0);
    drv_close(d);
    d = drv_again(path);
    p = d->r.mem + MEM_DATA;
    assert_int_equal(identify(d, 0, 1), 0);
    assert_int_equal(p[26], 1);
    assert_int_equal(manage(d, 1, 1), 0);
    drv_close(d);
    d = drv_again(path);
    p = d->r.mem + MEM_DATA;
    assert_int_equal(list_of(d, 0x10, 0), 0);
    assert_int_equal(make_namespace(d, 16, 16, 1).dw0, 1);
    drv_close(d);
    d = drv_again(path);
    p = d->r.mem + MEM_DATA;
    assert_int_equal(list_of(d, 0x10, 0), 1);
    assert_int_equal(list_of(d, 2, 0), 0);
    assert_int_equal(attach_it(d, 1, true, OURS), 0);
    assert_int_equal(identify(d, 3, 1), 0);
    memcpy(uuid, p + 4, sizeof uuid);
    drv_close(d);
    d = drv_again(path);
    p = d->r.mem + MEM_DATA;
    assert_int_equal(list_of(d, 2, 0), 1);
    assert_int_equal(identify(d, 0, 1), 0);
    assert_int_equal(dxpu_get_le64(p), 16);
    assert_int_equal(identify(d, 3, 1), 0);
    assert_memory_equal(uuid, p + 4, sizeof uuid);
    wipe(d->r.dev, DEVICE_WIPED); /* as the owner gave it */
    drv_close(d);
    d = drv_again(path);
    p = d->r.mem + MEM_DATA;
    assert_int_equal(identify(d, 0, 1), 0);
    assert_int_equal(dxpu_get_le64(p), STORE_BYTES / 512);
    drv_close(d);
    remove_disk(path);
}

/* S-163: one that is damaged, or of other files, is not taken, and a wipe mends it. */
static void test_s163_a_layout_that_does_not_fit(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX", text[1024], other[1024];
    driver *d = drv_up_file(path);
    size_t len;
    (void)state;
    snprintf(layout_file, sizeof layout_file, "%s.layout", path);
    assert_int_equal(manage(d, 1, 1), 0); /* delete */
    drv_close(d);
    len = layout_text(text);
    assert_true(fits(path));
    for (size_t i = 0; i < len; i++) {
        memcpy(other, text, len);
        other[i] ^= (char)(1 << i % 8);
        put_layout(other, len);
        assert_false(fits(path));
    }
    for (size_t i = 0; i < len; i++) {
        put_layout(text, i);
        assert_false(fits(path));
    }
    memcpy(other, text, len);
    other[len] = '\n';
    put_layout(other, len + 1);
    assert_false(fits(path));
    unlink(layout_file);
    assert_int_equal(mkdir(layout_file, 0700), 0);
    assert_false(fits(path));
    assert_int_equal(rmdir(layout_file), 0);
    put_layout(text, len);
    assert_true(fits(path)); /* the control */
    assert_int_equal(truncate(path, STORE_BYTES * 2), 0);
    {
        device_settings set = { .mps_bytes = 512, .file = path };
        device_port port = { .emit = rc_emitted };
        void *n = nvme_kind.create(&set, &port);
        assert_false(nvme_kind.fits(n)); /* it was of a smaller file */
        wipe(n, DEVICE_WIPED);
        assert_true(nvme_kind.fits(n));
        nvme_kind.destroy(n);
        n = nvme_kind.create(&set, &port);
        assert_true(nvme_kind.fits(n));
        nvme_kind.destroy(n);
        put_layout(text, len); /* of files that are gone: these are new */
        assert_int_equal(truncate(path, 0), 0);
        set.file_bytes = STORE_BYTES;
        n = nvme_kind.create(&set, &port);
        assert_true(nvme_kind.fits(n));
        assert_int_equal(((nvme *)n)->ns[0].is.block_log2, 9);
        nvme_kind.destroy(n);
        assert_true(fits(path));
    }
    remove_disk(path);
}

/* S-163: what the first start gave lasts, too: another --block is for another wipe. */
/* A file that no host has changed the namespaces of is served at its new size, with its blocks;
   control: test_s163_a_layout_that_does_not_fit. */
static void test_s163_an_untouched_file_may_grow(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    device_settings set = { .mps_bytes = 512, .file = path, .block_bytes = 4096 };
    device_port port = { .emit = rc_emitted };
    driver *d = drv_up_file(path);
    struct stat st;
    nvme *n;
    (void)state;
    drv_close(d);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, 2 * st.st_size), 0);
    for (unsigned start = 0; start < 2; start++) {
        n = nvme_kind.create(&set, &port);
        assert_non_null(n);
        assert_true(n->layout.fits);
        assert_int_equal(n->ns[0].is.bytes, 2 * st.st_size);
        assert_int_equal(n->ns[0].is.block_log2, 9);
        nvme_kind.destroy(n);
    }
    remove_disk(path);
}

static void test_s163_the_first_layout_lasts(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    device_settings set = { .mps_bytes = 512, .file = path, .block_bytes = 4096 };
    device_port port = { .emit = rc_emitted };
    driver *d = drv_up_file(path);
    nvme *n;
    (void)state;
    drv_close(d);
    for (unsigned round = 0; round < 2; round++) { /* 1: the control */
        n = nvme_kind.create(&set, &port);
        assert_non_null(n);
        assert_int_equal(n->ns[0].is.block_log2, round ? 12 : 9);
        wipe(n, DEVICE_WIPED);
        assert_int_equal(n->ns[0].is.block_log2, 12);
        nvme_kind.destroy(n);
    }
    remove_disk(path);
}

/* A change that cannot be kept is not made. */
static void test_s163_a_layout_that_cannot_be_written(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX", in_the_way[80];
    driver *d = drv_up_file(path);
    (void)state;
    snprintf(layout_file, sizeof layout_file, "%s.layout", path);
    snprintf(in_the_way, sizeof in_the_way, "%s.new", layout_file);
    assert_int_equal(mkdir(in_the_way, 0700), 0);
    assert_int_equal(admin(d, 0x80, 1, 1, 0), NVME_INTERNAL_ERROR);
    assert_int_equal(identify(d, 0, 1), 0);
    assert_int_equal(d->r.mem[MEM_DATA + 26], 0);
    assert_int_equal(manage(d, 1, 1), NVME_INTERNAL_ERROR);
    assert_int_equal(list_of(d, 0x10, 0), 1);
    assert_int_equal(rmdir(in_the_way), 0);
    assert_int_equal(admin(d, 0x80, 1, 1, 0), 0);
    drv_close(d);
    remove_disk(path);
}

/* ==== 13  A sync that failed ================================================================== */

/* What is to be durable is not, whatever the system says of later syncs. */
static void all_is_lost(driver *d)
{
    sqe fua = io(1, 0, 1), read_fua = io(2, 0, 1), flush = io(0, 0, 1), all = flush;
    sqe write = io(1, 8, 1), zeroes = io(8, 0, 1);
    fua.dw[12] |= 1u << 30;
    read_fua.dw[12] |= 1u << 30;
    all.dw[1] = NVME_NSID_ALL;
    assert_int_equal(drv_do(d, 1, &flush).status, NVME_WRITE_FAULT);
    assert_int_equal(drv_do(d, 1, &all).status, NVME_WRITE_FAULT);
    assert_int_equal(drv_do(d, 1, &fua).status, NVME_WRITE_FAULT);
    assert_int_equal(drv_do(d, 1, &read_fua).status, NVME_READ_ERROR);
    assert_int_equal(drv_do(d, 1, &write).status, 0); /* it may be in the cache */
    assert_int_equal(drv_do(d, 1, &zeroes).status, 0);
    assert_int_equal(feature(d, true, 6, 0, 0).status,
                     NVME_INTERNAL_ERROR); /* the cache goes off */
    assert_int_equal(admin(d, 0x80, 1, 1, 0), NVME_INTERNAL_ERROR);
    assert_int_equal(manage(d, 1, 1), NVME_INTERNAL_ERROR);
    assert_int_equal(attach_it(d, 1, false, OURS), NVME_INTERNAL_ERROR); /* the layout as well */
    reg_set32(&d->r, 0x14, reg32(&d->r, 0x14) | 1 << 14);
    assert_int_equal(reg32(&d->r, 0x1c) & 0xe, 0x2); /* no orderly shutdown */
}

static void all_is_well(driver *d)
{
    sqe flush = io(0, 0, 1);
    assert_int_equal(drv_do(d, 1, &flush).status, 0);
    assert_int_equal(admin(d, 0x80, 1, 0, 0), 0);
}

static void count_loss(void *user, const char *what)
{
    (void)user;
    assert_non_null(strstr(what, "may be lost"));
    faults++;
}

static void next_host(driver *d)
{
    nvme_kind.reset(d->r.dev);
    drv_boot(d, 1);
}

/* S-164: until a wipe that could be made durable, or another start. */
static void test_s164_a_failed_sync_stays(void **state)
{
    static const int errors[] = { EIO, ENOSPC };
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        char path[] = "/tmp/unit_nvme.XXXXXX";
        driver *d = drv_up_file(path);
        device_port *port = &d->r.port;
        sqe flush = io(0, 0, 1);
        snprintf(layout_file, sizeof layout_file, "%s.layout", path);
        port->fault = count_loss;
        faults = 0;
        all_is_well(d);
        sync_error = errors[i];
        sync_errors = 1;
        assert_int_equal(drv_do(d, 1, &flush).status, NVME_WRITE_FAULT);
        all_is_lost(d);
        assert_int_equal(faults, 1);
        next_host(d); /* it finds it so, too */
        all_is_lost(d);
        assert_int_equal(faults, 1);
        sync_errors = 1;
        wipe(d->r.dev, DEVICE_UNWIPED);
        wipe(d->r.dev, DEVICE_WIPED);
        next_host(d);
        all_is_well(d);
        sync_errors = 1;
        assert_int_equal(drv_do(d, 1, &flush).status, NVME_WRITE_FAULT);
        assert_int_equal(faults, 2);
        drv_close(d);
        d = drv_again(path);
        drv_queues(d, 1);
        all_is_well(d);
        drv_close(d);
        unlink(path);
        unlink(layout_file);
    }
    sync_error = EIO;
}

static struct {
    sem_t begun, go_on;
    block_store store;
} two;

/* The first sync takes the system's error with it, and is slow to come back. */
static void first_waits(unsigned number)
{
    if (number == 1) {
        sem_post(&two.begun);
        sem_wait(&two.go_on);
    }
}

static void *sync_too(void *unused)
{
    (void)unused;
    return block_store_sync(&two.store) ? &two : NULL;
}

/* S-164: the system has an error for one of the syncs that are under way; the others fail, too. */
static void test_s164_one_of_two_syncs_is_given_the_error(void **state)
{
    char path[] = "/tmp/unit_nvme.XXXXXX";
    pthread_t thread[2];
    void *failed[2];
    (void)state;
    assert_true(mkstemp(path) >= 0);
    assert_int_equal(block_store_open(&two.store, "nvme", path, STORE_BYTES, false), 0);
    assert_int_equal(sem_init(&two.begun, 0, 0) | sem_init(&two.go_on, 0, 0), 0);
    sync_count = 0;
    sync_errors = 1;
    syncing = first_waits;
    assert_int_equal(pthread_create(&thread[0], NULL, sync_too, NULL), 0);
    sem_wait(&two.begun);
    assert_int_equal(pthread_create(&thread[1], NULL, sync_too, NULL), 0);
    usleep(20000); /* it would be over, if it did not wait */
    sem_post(&two.go_on);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(thread[i], &failed[i]), 0);
        assert_non_null(failed[i]);
    }
    syncing = NULL;
    assert_int_equal(sync_count, 2); /* the second may be about data that the first did not see */
    assert_int_equal(block_store_lost(&two.store), EIO);
    assert_int_equal(block_store_sync(&two.store), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(block_store_sync_rewritten(&two.store), 0);
    assert_int_equal(block_store_sync(&two.store), 0); /* the control */
    block_store_close(&two.store);
    unlink(path);
}

/* ==== 14  The controller memory buffer ======================================================== */

enum { CMB_BYTES = 2 << 20, CMB_ON = 3 };
#define CMB_BAR 0x730000000u  /* where the host has it ... */
#define CMB_CBA 0x5000000000u /* ... and where the controller is to find it */

static uint64_t reg64(rc *r, uint32_t offset)
{
    return reg32(r, offset) | (uint64_t)reg32(r, offset + 4) << 32;
}

/* Below the address that software gave it. */
static void cmb_place(driver *d)
{
    cfg_write(&d->r, 0x18, (uint32_t)CMB_BAR);
    cfg_write(&d->r, 0x1c, CMB_BAR >> 32);
}

/* As Linux enables it. */
static void cmb_enable(driver *d, uint64_t cba)
{
    reg_set32(&d->r, NVME_CMBMSC, 1);
    reg_set32(&d->r, NVME_CMBMSC + 4, (uint32_t)(cba >> 32));
    reg_set32(&d->r, NVME_CMBMSC, (uint32_t)cba | CMB_ON);
}

/* A driver with its admin queue, and the buffer enabled. */
static driver *cmb_up(void)
{
    driver *d;
    drv_cmb_bytes = CMB_BYTES;
    d = drv_open(NULL);
    drv_cmb_bytes = 0;
    drv_enumerate(d);
    cmb_place(d);
    drv_msix(d);
    drv_enable(d);
    cmb_enable(d, CMB_CBA);
    return d;
}

/* Processor stores of 8 bytes, to uncached memory. */
static void cmb_write(driver *d, uint32_t at, const uint8_t *data, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 8)
        mmio_write(&d->r, CMB_BAR + at + i, data + i, 8);
}

static void cmb_read(driver *d, uint32_t at, uint8_t *data, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 512) {
        assert_int_equal(mmio_read_status(&d->r, CMB_BAR + at + i, 512), DXPU_CPL_SC);
        assert_int_equal(d->r.data_len, 512);
        memcpy(data + i, d->r.data, 512);
    }
}

/* Queue 1 with its submission entries at `base`. */
static uint16_t cmb_queue(driver *d, uint64_t base)
{
    sqe s = command(0x01, 0);
    queue_restart(&d->q[1], DEPTH);
    assert_int_equal(make_cq(d, 1, DEPTH, 1), 0);
    s.dw[6] = (uint32_t)base;
    s.dw[7] = (uint32_t)(base >> 32);
    s.dw[10] = (DEPTH - 1) << 16 | 1;
    s.dw[11] = 1 << 16 | 1;
    return drv_do(d, 0, &s).status;
}

/* Submit one command to queue 1 at `at` of the buffer, and wait. */
static result cmb_do(driver *d, uint32_t at, const sqe *s)
{
    uint8_t e[NVME_SQE_BYTES];
    result res;
    for (unsigned i = 0; i < 16; i++)
        dxpu_put_le32(e + i * 4u, s->dw[i]);
    dxpu_put_le16(e + 2, ++d->cid);
    cmb_write(d, at + d->q[1].tail * NVME_SQE_BYTES, e, sizeof e);
    d->q[1].tail = (d->q[1].tail + 1) % DEPTH;
    drv_ring(d, 1);
    rc_run(&d->r);
    assert_true(drv_reap(d, 1, &res));
    assert_int_equal(res.cid, d->cid);
    drv_consumed(d, 1);
    return res;
}

static void test_cmb_registers(void **state)
{
    driver *d = drv_up(0);
    rc *r = &d->r;
    (void)state;
    cmb_enable(d, CMB_CBA); /* Control: there is none */
    assert_int_equal(reg32(r, 4) & 1u << 25, 0);
    assert_int_equal(reg64(r, NVME_CMBLOC), 0);
    assert_int_equal(reg64(r, NVME_CMBMSC), 0);
    cfg_write(r, 0x18, 0xffffffff);
    assert_int_equal(cfg_read(r, 0x18), 0);
    drv_close(d);

    d = cmb_up();
    r = &d->r;
    assert_int_equal(reg32(r, 4) & 1u << 25, 1u << 25); /* CAP.CMBS */
    assert_int_equal(reg64(r, NVME_CMBMSC), CMB_CBA | CMB_ON);
    assert_int_equal(reg32(r, NVME_CMBLOC), 0x6a); /* BAR 2, offset 0, nothing kept apart */
    assert_int_equal(reg32(r, NVME_CMBSZ), (CMB_BYTES / 4096) << 12 | 0x1d);
    assert_int_equal(reg32(r, NVME_CMBSTS), 0);
    reg_set32(r, NVME_CMBMSC, 0xffe);
    assert_int_equal(reg32(r, NVME_CMBMSC), 2); /* the rest is reserved */
    assert_int_equal(reg64(r, NVME_CMBLOC), 0); /* not without CRE */
    reg_set64(r, NVME_CMBMSC, (0 - (uint64_t)CMB_BYTES) | CMB_ON);
    assert_int_equal(reg32(r, NVME_CMBSTS), 0);
    reg_set64(r, NVME_CMBMSC, (4096 - (uint64_t)CMB_BYTES) | CMB_ON);
    assert_int_equal(reg32(r, NVME_CMBSTS), 1); /* CBAI */
    cfg_write(r, 0x18, 0xffffffff);
    cfg_write(r, 0x1c, 0xffffffff);
    assert_int_equal(cfg_read(r, 0x18), (uint32_t) ~(CMB_BYTES - 1) | 0xc); /* prefetchable */
    assert_int_equal(cfg_read(r, 0x1c), 0xffffffff);
    drv_close(d);
}

static void test_cmb_sizes(void **state)
{
    static const struct {
        uint64_t bytes;
        bool good;
    } rows[] = {
        { 0, true },        { 4096, false },   { 64 << 10, true },          { 96 << 10, false },
        { 64 << 20, true }, { 1 << 30, true }, { (uint64_t)1 << 31, false }
    };
    device_port port = { .emit = rc_emitted };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        device_settings set = { .memory_bytes = STORE_BYTES, .cmb_bytes = rows[i].bytes };
        void *device = nvme_kind.create(&set, &port);
        assert_int_equal(device != NULL, rows[i].good);
        if (device)
            nvme_kind.destroy(device);
    }
}

/* Read requests of the controller for one read and one write of 4 KB with an aligned buffer. */
static void cmb_count(driver *d, bool in_cmb, uint32_t at, unsigned count[2])
{
    for (unsigned write = 0; write < 2; write++) {
        sqe s = io(write ? 1 : 2, 8, 8);
        unsigned before = d->r.reads;
        result res = in_cmb ? cmb_do(d, at, &s) : drv_do(d, 1, &s);
        assert_int_equal(res.status, 0);
        count[write] = d->r.reads - before;
    }
}

static void test_cmb_entries_need_no_request(void **state)
{
    driver *d = cmb_up();
    uint64_t messages = 0;
    unsigned count[2];
    (void)state;
    assert_int_equal(cmb_queue(d, sq_address(1)), 0); /* Control: a queue in host memory */
    cmb_count(d, false, 0, count);
    assert_int_equal(count[0], 1);
    assert_int_equal(count[1], 1 + 4096 / 512);
    assert_int_equal(model(d)->fn.local_accesses, 0);
    assert_int_equal(admin(d, 0x00, 0, 1, 0), 0);
    assert_int_equal(admin(d, 0x04, 0, 1, 0), 0);

    assert_int_equal(cmb_queue(d, CMB_CBA + 0x10000), 0);
    for (unsigned i = 0; i < DEPTH; i++) { /* round its end */
        messages = model(d)->fn.count.dma_reads;
        cmb_count(d, true, 0x10000, count);
        assert_int_equal(count[0], 0);
        assert_int_equal(count[1], 4096 / 512);
        assert_int_equal(model(d)->fn.count.dma_reads - messages, 8);
    }
    assert_int_equal(model(d)->fn.local_accesses, 2 * DEPTH);
    assert_int_equal(model(d)->count.cmb_writes, 2 * DEPTH * 8);
    drv_close(d);
}

/* Data and lists there, too: a write then needs no request at all. */
static void test_cmb_data_and_lists(void **state)
{
    driver *d = cmb_up();
    rc *r = &d->r;
    uint8_t out[4 * 4096], in[sizeof out], list[32];
    unsigned reads, writes;
    sqe s;
    (void)state;
    pattern(d, out, sizeof out);
    assert_int_equal(cmb_queue(d, CMB_CBA), 0);
    for (uint64_t i = 0; i < 4; i++) /* the second page is the host's */
        dxpu_put_le64(list + 8 * i, i == 1 ? MEM_LOW + MEM_DATA : CMB_CBA + 0x80000 + i * 4096);
    cmb_write(d, 0x70000, list, sizeof list);
    cmb_write(d, 0x80000, out, 4096);
    cmb_write(d, 0x82000, out + 8192, 8192);
    memcpy(r->mem + MEM_DATA, out + 4096, 4096);
    s = io(1, 16, 32);
    s.dw[6] = 0x80000;
    s.dw[7] = s.dw[9] = CMB_CBA >> 32;
    s.dw[8] = 0x70008;
    reads = r->reads;
    assert_int_equal(cmb_do(d, 0, &s).status, 0);
    assert_int_equal(r->reads - reads, 4096 / 512); /* of the page that is in host memory */
    cmb_write(d, 0x82000, out, 4096);
    memset(r->mem + MEM_DATA, 0, 4096);

    s.dw[0] = 2;
    writes = r->writes;
    assert_int_equal(cmb_do(d, 0, &s).status, 0);
    assert_int_equal(r->writes - writes, 4096 / 128 + 2); /* completion, interrupt */
    cmb_read(d, 0x80000, in, 4096);
    memcpy(in + 4096, r->mem + MEM_DATA, 4096);
    cmb_read(d, 0x82000, in + 8192, 8192);
    assert_memory_equal(in, out, sizeof out);

    s = io(1, 0, 8);
    s.dw[6] = 0x80000;
    s.dw[7] = CMB_CBA >> 32;
    reads = r->reads;
    assert_int_equal(cmb_do(d, 0, &s).status, 0);
    assert_int_equal(r->reads, reads);
    drv_close(d);
}

/* Only what lies within it, and while it is enabled. */
static void test_cmb_range(void **state)
{
    driver *d = cmb_up();
    unsigned reads = d->r.reads;
    sqe s = io(1, 0, 16);
    uint8_t data[8192], back[8192];
    (void)state;
    pattern(d, data, sizeof data);
    cmb_enable(d, MEM_LOW + MEM_DATA); /* over host memory: that is what the host wants */
    assert_int_equal(cmb_queue(d, MEM_LOW + MEM_DATA), 0);
    cmb_write(d, CMB_BYTES - 4096, data, 4096);
    memcpy(d->r.mem + MEM_DATA + CMB_BYTES, data + 4096, 4096);
    s.dw[6] = MEM_LOW + MEM_DATA + CMB_BYTES - 4096; /* the second page is behind its end */
    s.dw[8] = MEM_LOW + MEM_DATA + CMB_BYTES;
    reads = d->r.reads;
    assert_int_equal(cmb_do(d, 0, &s).status, 0);
    assert_int_equal(d->r.reads - reads, 8);
    s.dw[0] = 2;
    s.dw[6] = MEM_LOW + MEM_DATA - 8192; /* before its start */
    s.dw[8] = MEM_LOW + MEM_DATA - 4096;
    assert_int_equal(cmb_do(d, 0, &s).status, 0);
    memcpy(back, d->r.mem + MEM_DATA - 8192, sizeof back);
    assert_memory_equal(back, data, sizeof back);

    reg_set32(&d->r, NVME_CMBMSC, (MEM_LOW + MEM_DATA) | 1); /* without CMSE: the host's */
    memset(d->r.mem + MEM_DATA, 0, 64);
    reads = d->r.reads;
    drv_ring(d, 1);
    d->q[1].tail = (d->q[1].tail + 1) % DEPTH;
    drv_ring(d, 1);
    assert_int_equal(d->r.reads, reads + 1);
    rc_run(&d->r);
    drv_close(d);
}

/* A driver would have to look into them over the fabric: CMBSZ.CQS is 0. */
static void test_cmb_refuses_completion_queues(void **state)
{
    static const struct {
        uint64_t base;
        uint16_t status;
    } rows[] = { { CMB_CBA, NVME_INVALID_CMB },
                 { CMB_CBA + CMB_BYTES - 4096, NVME_INVALID_CMB },
                 { CMB_CBA - 4096, NVME_INVALID_CMB }, /* it ends there */
                 { CMB_CBA - 8192, 0 },
                 { CMB_CBA + CMB_BYTES, 0 } };
    driver *d = cmb_up();
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sqe s = command(0x05, 0);
        s.dw[6] = (uint32_t)rows[i].base;
        s.dw[7] = (uint32_t)(rows[i].base >> 32);
        s.dw[10] = 511u << 16 | (i + 1); /* two pages */
        s.dw[11] = 1;
        assert_int_equal(drv_do(d, 0, &s).status & 0x7ff, rows[i].status);
    }
    drv_close(d);
}

/* The admin queue likewise: the controller does not become ready. */
static void test_cmb_refuses_the_admin_completion_queue(void **state)
{
    static const struct {
        uint64_t base;
        uint32_t csts;
    } rows[] = { { CMB_CBA, NVME_CSTS_CFS },
                 { CMB_CBA + CMB_BYTES - 4096, NVME_CSTS_CFS },
                 { CMB_CBA - 4096, NVME_CSTS_CFS }, /* it ends there */
                 { CMB_CBA - 8192, NVME_CSTS_RDY } };
    driver *d = cmb_up();
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reg_set32(&d->r, 0x14, 0);
        reg_set32(&d->r, 0x24, 511u << 16 | 31); /* two pages */
        reg_set32(&d->r, 0x30, (uint32_t)rows[i].base);
        reg_set32(&d->r, 0x34, (uint32_t)(rows[i].base >> 32));
        reg_set32(&d->r, 0x14, 0x460001);
        assert_int_equal(reg32(&d->r, 0x1c), rows[i].csts);
    }
    drv_close(d);
}

/* CMBMSC outlives what a driver resets: Linux's writes it once.  Contents do not. */
static void test_cmb_resets(void **state)
{
    (void)state;
    for (unsigned kind = CONTROLLER_RESET; kind <= POWER_RESET; kind++) {
        driver *d = cmb_up();
        uint8_t data[128 << 10], back[512];
        unsigned count[2];
        pattern(d, data, sizeof data);
        cmb_write(d, 0x40000, data, sizeof data);
        do_reset(d, kind);
        drv_enumerate(d);
        cmb_place(d);
        assert_int_equal(reg64(&d->r, NVME_CMBMSC), kind == POWER_RESET ? 0 : CMB_CBA | CMB_ON);
        cmb_read(d, 0x40000 + sizeof data - 512, back, sizeof back);
        assert_int_equal(memcmp(back, data + sizeof data - 512, sizeof back) == 0,
                         kind == CONTROLLER_RESET);
        if (kind != CONTROLLER_RESET) {
            memset(data, 0, sizeof back);
            assert_memory_equal(back, data, sizeof back);
        }
        drv_msix(d);
        drv_enable(d);
        if (kind == POWER_RESET)
            cmb_enable(d, CMB_CBA);
        assert_int_equal(cmb_queue(d, CMB_CBA), 0);
        cmb_count(d, true, 0, count);
        assert_int_equal(count[0], 0);
        drv_close(d);
    }
}

/* No driver goes on where the power was off: what is at the buffer's place is host memory again. */
static void test_cmb_power_off(void **state)
{
    dxpu_event e;
    (void)state;
    for (unsigned cycle = 0; cycle < 2; cycle++) { /* Control: none */
        driver *d = cmb_up();
        memset(&e, 0, sizeof e);
        e.type = DXPU_EVENT_SLOT_POWER;
        if (cycle)
            nvme_kind.event(d->r.dev, &e);
        do_reset(d, HOT_RESET);
        e.flags = DXPU_EVENT_ON;
        if (cycle)
            nvme_kind.event(d->r.dev, &e);
        drv_enumerate(d);
        assert_int_equal(reg64(&d->r, NVME_CMBMSC), cycle ? 0 : CMB_CBA | CMB_ON);
        assert_int_equal(nvme_cmb_local(model(d), CMB_CBA, 4096, false) == NULL, cycle);
        drv_close(d);
    }
}

/* Any size at any place. */
static void test_cmb_accesses(void **state)
{
    driver *d = cmb_up();
    rc *r = &d->r;
    uint8_t data[512], back[512];
    uint64_t dropped = model(d)->fn.count.posted_dropped;
    dxpu_tlp t;
    (void)state;
    r->mps = 512;
    cfg_write_be(r, 0x68, 0x2840, 0x3); /* Max_Payload_Size 512 */
    pattern(d, data, sizeof data);
    t = rc_request(r, DXPU_TLP_MWR, CMB_BAR + CMB_BYTES - 512, 512);
    t.payload.ptr = data;
    t.payload.len = 512;
    rc_give(r, &t);
    t.address += 512; /* past its end */
    rc_give(r, &t);
    assert_int_equal(model(d)->fn.count.posted_dropped, dropped + 1);
    cmb_read(d, CMB_BYTES - 512, back, sizeof back);
    assert_memory_equal(back, data, sizeof back);
    assert_int_equal(mmio_read_status(r, CMB_BAR + CMB_BYTES, 8), DXPU_CPL_UR);
    assert_int_equal(mmio_read_status(r, CMB_BAR - 4, 4), DXPU_CPL_UR);
    for (unsigned at = 0; at < 8; at++) { /* part of a dword or of two */
        for (unsigned bytes = 1; bytes <= 8 - at; bytes++) {
            uint8_t want[512] = { 0 };
            mmio_write(r, CMB_BAR, want, 8);
            mmio_write(r, CMB_BAR + at, data, bytes);
            memcpy(want + at, data, bytes);
            cmb_read(d, 0, back, sizeof back);
            assert_memory_equal(back, want, sizeof back);
        }
    }
    t = rc_request(r, DXPU_TLP_MWR, CMB_BAR, 4);
    t.payload.ptr = data;
    t.payload.len = 4;
    t.ep = true;
    rc_give(r, &t);
    cmb_read(d, 0, back, 512);
    assert_int_equal(back[0], 0); /* poisoned data are not written */
    drv_close(d);
}

/* A host that posts without waiting: how much one call does has a limit, and the rest comes. */
static void test_cmb_bounded_turn(void **state)
{
    enum { DEEP = 1024 };
    driver *d = cmb_up();
    uint8_t bad[NVME_SQE_BYTES] = { 0x7f }; /* no such command: over at once */
    uint64_t before;
    sqe s = command(0x05, 0);
    (void)state;
    s.dw[6] = (uint32_t)cq_address(1);
    s.dw[10] = (DEEP - 1) << 16 | 1;
    s.dw[11] = 1;
    assert_int_equal(drv_do(d, 0, &s).status, 0);
    s.dw[0] = 0x01;
    s.dw[6] = 0;
    s.dw[7] = CMB_CBA >> 32;
    s.dw[11] = 1 << 16 | 1;
    assert_int_equal(drv_do(d, 0, &s).status, 0);
    for (unsigned i = 0; i < DEEP; i++) {
        dxpu_put_le16(bad + 2, i);
        cmb_write(d, i * NVME_SQE_BYTES, bad, sizeof bad);
    }
    before = model(d)->count.commands;
    reg_set32(&d->r, NVME_DOORBELLS + 8, DEEP - 1);
    assert_int_equal(model(d)->count.commands - before, NVME_TURN_ENTRIES);
    for (unsigned turn = 2; turn <= 4; turn++) {
        nvme_kind.tick(d->r.dev, turn * 1000000ull);
        assert_int_equal(model(d)->count.commands - before,
                         turn < 4 ? turn * NVME_TURN_ENTRIES : DEEP - 1);
    }
    rc_run(&d->r);
    drv_close(d);
}

static void bounded_copies(unsigned share)
{
    driver *d = cmb_up();
    uint8_t list[2048];
    uint64_t before;
    model(d)->turn_share = share;
    assert_int_equal(cmb_queue(d, CMB_CBA), 0);
    for (uint64_t i = 0; i < 256; i++)
        dxpu_put_le64(list + 8 * i, CMB_CBA + 0x100000 + i * 4096);
    cmb_write(d, 0x80000, list, sizeof list);
    for (unsigned i = 0; i < DEPTH - 1; i++) {
        uint8_t e[NVME_SQE_BYTES];
        sqe s = io(1, 0, 2048);
        s.dw[0] |= i << 16;
        s.dw[6] = 0x100000;
        s.dw[7] = s.dw[9] = CMB_CBA >> 32;
        s.dw[8] = 0x80008;
        for (unsigned k = 0; k < 16; k++)
            dxpu_put_le32(e + k * 4, s.dw[k]);
        cmb_write(d, i * NVME_SQE_BYTES, e, sizeof e);
    }
    before = model(d)->fn.local_accesses;
    reg_set32(&d->r, NVME_DOORBELLS + 8, DEPTH - 1);
    assert_true(model(d)->fn.local_accesses - before <= FN_LOCAL_TURN / share + 1);
    for (unsigned i = 0; i < 200 * share && model(d)->writes < DEPTH - 1; i++) {
        before = model(d)->fn.local_accesses;
        nvme_kind.tick(d->r.dev, i * 1000000ull);
        assert_true(model(d)->fn.local_accesses - before <= FN_LOCAL_TURN / share + 1);
    }
    assert_int_equal(model(d)->writes, DEPTH - 1);
    rc_run(&d->r);
    drv_close(d);
}

/* 64 writes of 1 MB whose data are there: 256 pages a call. */
static void test_cmb_bounded_copies(void **state)
{
    (void)state;
    bounded_copies(1);
}

/* A device of many functions has as many in all. */
static void test_s161_copies_of_one_of_many_functions(void **state)
{
    (void)state;
    bounded_copies(33);
}

/* S-161: what was written of the buffer is given back by a job, not within a reset. */
static void test_s161_a_cleared_buffer_leaves_outside_the_loop(void **state)
{
    (void)state;
    for (unsigned kind = FUNCTION_RESET; kind <= POWER_RESET; kind++) {
        uint8_t data[128 << 10], back[512] = { 0 };
        driver *d;
        hold_jobs();
        d = cmb_up();
        drv_jobs = NULL;
        pattern(d, data, sizeof data);
        cmb_write(d, 0x40000, data, sizeof data);
        do_reset(d, kind);
        assert_int_equal(held.submitted, 1);
        held_begin();
        held_end(d);
        assert_null(held.done.head);
        drv_enumerate(d);
        cmb_place(d);
        cmb_read(d, 0x40000, data, sizeof back);
        assert_memory_equal(data, back, sizeof back);
        cmb_write(d, 0x40000, data, 128 << 10);
        do_reset(d, kind); /* what is not over when the device ends */
        drv_close(d);
    }
}

/* S-161: one call reads 1 MB in the loop, more of it by threads. */
static void test_s161_short_reads_of_a_turn(void **state)
{
    enum { DEEP = 128, COUNT = DEEP - 1, BYTES = 16 << 10 };
    uint8_t list[32], e[NVME_SQE_BYTES];
    sqe s = command(0x05, 0);
    driver *d;
    (void)state;
    hold_jobs();
    d = cmb_up();
    drv_jobs = NULL;
    s.dw[6] = (uint32_t)cq_address(1);
    s.dw[10] = (DEEP - 1) << 16 | 1;
    s.dw[11] = 1;
    assert_int_equal(drv_do(d, 0, &s).status, 0);
    s.dw[0] = 0x01;
    s.dw[6] = 0;
    s.dw[7] = CMB_CBA >> 32;
    s.dw[11] = 1 << 16 | 1;
    assert_int_equal(drv_do(d, 0, &s).status, 0);
    for (uint64_t i = 0; i < 4; i++)
        dxpu_put_le64(list + 8 * i, CMB_CBA + 0x100000 + i * 4096);
    cmb_write(d, 0x80000, list, sizeof list);
    for (unsigned i = 0; i < COUNT; i++) {
        s = io(2, 0, BYTES / 512);
        s.dw[0] |= i << 16;
        s.dw[6] = 0x100000;
        s.dw[7] = s.dw[9] = CMB_CBA >> 32;
        s.dw[8] = 0x80008;
        for (unsigned k = 0; k < 16; k++)
            dxpu_put_le32(e + k * 4, s.dw[k]);
        cmb_write(d, i * NVME_SQE_BYTES, e, sizeof e);
    }
    reg_set32(&d->r, NVME_DOORBELLS + 8, COUNT);
    assert_int_equal(held.submitted, COUNT);
    assert_int_equal(held.quick, NVME_TURN_QUICK_BYTES / BYTES);
    held_rest(d);
    assert_int_equal(model(d)->reads, COUNT);
    drv_close(d);
}

/* ==== 15  Push rules ========================================================================== */

static driver *push_open(bool offered)
{
    driver *d = drv_open(NULL);
    push_begin(&d->r);
    if (offered)
        push_offer(&d->r, 8);
    drv_enumerate(d);
    drv_msix(d);
    return d;
}

static driver *push_up(bool offered)
{
    driver *d = push_open(offered);
    drv_enable(d);
    drv_queues(d, 2);
    return d;
}

/* How many reads a command of no data costs; `count` at once. */
static unsigned push_reads_of(driver *d, unsigned count)
{
    unsigned before = d->r.reads, done = 0;
    sqe s = command(0x00, 1); /* flush */
    result res;
    for (unsigned i = 0; i < count; i++)
        (void)drv_send(d, 1, &s);
    drv_ring(d, 1);
    rc_run(&d->r);
    while (drv_reap(d, 1, &res)) {
        assert_int_equal(res.status, 0);
        done++;
    }
    assert_int_equal(done, count);
    drv_consumed(d, 1);
    return d->r.reads - before;
}

static void test_u13_entries_come_with_the_doorbell(void **state)
{
    driver *d = push_up(true);
    unsigned fetched = 0;
    (void)state;
    assert_int_equal(push_rules_made, 3);
    for (unsigned i = 0; i < 3 * DEPTH; i++)
        assert_int_equal(push_reads_of(d, 1), 0);
    for (unsigned n = 1; n < DEPTH; n++)
        fetched += push_reads_of(d, n);
    assert_true(fetched > 0);          /* of more entries at once than a push has */
    for (unsigned n = 1; n <= 15; n++) /* what wraps costs none either */
        assert_int_equal(push_reads_of(d, n), 0);
    drv_close(d);
    d = push_up(false); /* control */
    assert_int_equal(push_rules_made, 0);
    assert_int_equal(push_reads_of(d, 1), 1);
    drv_close(d);
}

/* It is the pushed entry that is used, not what is in memory. */
static void test_u13_what_was_pushed_is_used(void **state)
{
    driver *d = push_up(true);
    sqe s = command(0x00, 1);
    (void)state;
    push_wrongly = true;
    assert_int_equal(drv_do(d, 1, &s).status & 0x7ff, 1); /* Invalid Command Opcode */
    push_wrongly = false;
    assert_int_equal(drv_do(d, 1, &s).status, 0);
    push_nothing = true;
    assert_int_equal(push_reads_of(d, 1), 1); /* U-9 */
    push_nothing = false;
    assert_int_equal(push_reads_of(d, 1), 0);
    drv_close(d);
}

static void test_u14_rules_end_with_their_queue(void **state)
{
    driver *d = push_up(true);
    (void)state;
    assert_int_equal(admin(d, 0x00, 0, 2, 0), 0); /* Delete I/O Submission Queue */
    assert_int_equal(push_rules_ended, 1);
    assert_int_equal(pushes.count, 2);
    assert_int_equal(make_sq(d, 2, DEPTH, 2), 0);
    assert_int_equal(pushes.count, 3);
    reg_set32(&d->r, 0x14, 0); /* a reset of the controller */
    assert_int_equal(pushes.count, 0);
    drv_enable(d);
    drv_queues(d, 2);
    assert_int_equal(pushes.count, 3);
    assert_int_equal(push_reads_of(d, 1), 0);
    cfg_write(&d->r, 0x10, BAR); /* its registers might be elsewhere now */
    assert_int_equal(pushes.count, 0);
    assert_int_equal(push_reads_of(d, 1), 1);
    drv_close(d);
}

static void test_u10_rules_end_with_a_hot_reset(void **state)
{
    dxpu_event e = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
    driver *d = push_up(true);
    (void)state;
    nvme_kind.event(model(d), &e);
    rc_look(&d->r);
    assert_int_equal(push_rules_ended, 3); /* they may have been on their way */
    assert_int_equal(pushes.count, 0);
    drv_boot(d, 2);
    assert_int_equal(pushes.count, 3); /* the offer stands */
    assert_int_equal(push_reads_of(d, 1), 0);
    nvme_kind.reset(model(d)); /* another host, which offers nothing */
    dxpu_push_table_init(&pushes, &(dxpu_push_offer){ 0, 0 });
    drv_boot(d, 2);
    assert_int_equal(push_reads_of(d, 1), 1);
    drv_close(d);
}

/* Queues beyond what is offered are read as ever. */
static void test_u2_fewer_rules_than_queues(void **state)
{
    driver *d = push_open(false);
    (void)state;
    push_offer(&d->r, 1);
    drv_enable(d);
    drv_queues(d, 2);
    assert_int_equal(pushes.count, 1);
    assert_int_equal(push_reads_of(d, 1), 1);
    assert_int_equal(admin(d, 0x0a, 0, 7, 0), 0); /* the admin queue has the rule */
    drv_close(d);
}

/* ==== 16  Fuzz =============================================================================== */

static void fuzz_memory(driver *d)
{
    rc *r = &d->r;
    uint8_t *p = r->mem + MEM_QUEUES + rnd(r) % 0x200000 / 4 * 4;
    static const uint32_t words[] = {
        0,          1,       2,       5, 6, 8, 9, 0x80, MEM_LOW + MEM_DATA, MEM_LOW + MEM_LISTS,
        0xffffffff, 0x10001, 0x3f0001
    };
    dxpu_put_le32(p, rnd(r) & 3 ? words[rnd(r) % (sizeof words / 4)] : rnd(r));
    dxpu_put_le64(r->mem + MEM_LISTS + rnd(r) % 4096 * 8,
                  rnd(r) & 7 ? MEM_LOW + rnd(r) % MEM_BYTES / 4096 * 4096 : rnd(r));
}

static void fuzz_entry(driver *d)
{
    static const uint8_t opcodes[] = { 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 0x0d, 0x15, 0x80 };
    rc *r = &d->r;
    unsigned q = rnd(r) % 4;
    sqe s = command(opcodes[rnd(r) % sizeof opcodes], rnd(r) & 7 ? 1 + rnd(r) % 3 : rnd(r));
    s.dw[6] = MEM_LOW + rnd(r) % MEM_BYTES / 4 * 4;
    s.dw[8] = MEM_LOW + rnd(r) % MEM_BYTES / 8 * 8;
    s.dw[10] = rnd(r) & 1 ? rnd(r) % 8 : rnd(r) % 0x400000;
    s.dw[11] = rnd(r) & 1 ? rnd(r) % 8 : 0;
    s.dw[12] = rnd(r) % 2100;
    if (rnd(r) % 4 == 0) {
        s.dw[0] |= 1 << 14;
        s.dw[8] = rnd(r) % 64 * 16;
        s.dw[9] = rnd(r) % 6 << 28;
    }
    (void)drv_send(d, q, &s);
    drv_ring(d, q);
}

static void fuzz_tlp(driver *d)
{
    static const uint32_t regs[] = { 0x04, 0x10,  0x14,  0x44,  0x50,  0x68,
                                     0x88, 0x104, 0x108, 0x10c, 0x110, 0x114 };
    rc *r = &d->r;
    uint8_t data[16];
    uint32_t what = rnd(r) % 64, offset = rnd(r) % NVME_BAR_BYTES / 4 * 4;
    pattern(d, data, sizeof data);
    if (what < 2) {
        dxpu_tlp t = cfg_tlp(r, DXPU_TLP_CFGWR0, regs[rnd(r) % 12]);
        t.first_be = (uint8_t)(rnd(r) & 15);
        t.payload.ptr = data;
        t.payload.len = 4;
        rc_give(r, &t);
    } else if (what < 4) {
        reg_set32(r, rnd(r) % 0x60 / 4 * 4, rnd(r) & 1 ? 0x460001 : rnd(r));
    } else if (what < 12) {
        mmio_write(r, (rnd(r) & 3 ? BAR : CMB_BAR) + offset / 16 * 16, data, 4 * (1 + rnd(r) % 4));
    } else if (what < 16) {
        dxpu_tlp t = rc_request(r, DXPU_TLP_MRD, BAR + offset, 4);
        t.tag = (uint16_t)(rnd(r) & 255);
        rc_give(r, &t);
    } else if (what < 20) { /* a completion with a tag that may be in flight */
        dxpu_tlp t, read = rc_request(r, DXPU_TLP_MRD, MEM_LOW + rnd(r) % 128 / 4 * 4, 16);
        read.requester = BDF;
        read.tag = (uint16_t)(rnd(r) % 32);
        dxpu_tlp_completion(&read, 0, rnd(r) & 1 ? DXPU_CPL_SC : DXPU_CPL_UR, &t);
        t.payload.ptr = data;
        t.payload.len = t.status ? 0 : 16;
        rc_give(r, &t);
    } else if (what < 32) {
        fuzz_memory(d);
    } else {
        fuzz_entry(d);
    }
}

/* The controller memory buffer lies over the data, the queues, or nothing of the host's. */
static void fuzz_revive(driver *d, uint64_t cba)
{
    d->r.hold = false;
    nvme_kind.reset(d->r.dev);
    rc_forget(&d->r);
    d->r.foreign = false;
    d->r.bdf = BDF;
    d->r.mps = 128;
    drv_enumerate(d);
    cmb_place(d);
    drv_msix(d);
    drv_enable(d);
    drv_queues(d, 3);
    cmb_enable(d, cba);
    d->r.foreign = true;
    d->r.bdf = BDF;
}

static void test_fuzz(void **state)
{
    static const uint64_t places[] = { CMB_CBA, MEM_LOW + MEM_DATA, MEM_LOW + MEM_QUEUES };
    driver *d;
    rc *r;
    (void)state;
    drv_cmb_bytes = CMB_BYTES;
    d = drv_up_namespaces(0, 3);
    drv_cmb_bytes = 0;
    r = &d->r;
    for (unsigned round = 0; round < 300; round++) {
        r->seed = round;
        fuzz_revive(d, places[round % 3]);
        for (unsigned i = 0; i < 100; i++) {
            fuzz_tlp(d);
            rc_look(r);
            for (unsigned k = rnd(r) % 16; k; k--)
                (void)rc_answer_one(r);
            nvme_kind.tick(r->dev, ((uint64_t)round * 100 + i) * 1000000);
        }
        for (unsigned k = 0; k < 20000 && rc_answer_one(r); k++)
            rc_look(r);
    }
    r->foreign = false;
    nvme_kind.reset(d->r.dev);
    wipe(d->r.dev, DEVICE_WIPED); /* it has deleted namespaces, too */
    fuzz_revive(d, CMB_CBA);
    r->foreign = false;
    try_sizes(d); /* and it still works */
    assert_true(model(d)->count.commands > 1000);
    assert_true(model(d)->fn.local_accesses > 1000);
    assert_true(model(d)->count.commands_failed < model(d)->count.commands);
    drv_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_identity),
        cmocka_unit_test(test_config_captures_its_number),
        cmocka_unit_test(test_config_masks),
        cmocka_unit_test(test_config_refuses),
        cmocka_unit_test(test_memory_space),
        cmocka_unit_test(test_bar_above_4g),
        cmocka_unit_test(test_register_sizes),
        cmocka_unit_test(test_unsupported_requests),
        cmocka_unit_test(test_enable_checks),
        cmocka_unit_test(test_identify),
        cmocka_unit_test(test_queue_errors),
        cmocka_unit_test(test_queue_pairs),
        cmocka_unit_test(test_queue_base_alignment),
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_health_counts),
        cmocka_unit_test(test_serial),
        cmocka_unit_test(test_firmware_and_others_are_not_there),
        cmocka_unit_test(test_io_all_sizes),
        cmocka_unit_test(test_read_request_size),
        cmocka_unit_test(test_io_device_control),
        cmocka_unit_test(test_io_queues_deep),
        cmocka_unit_test(test_io_is_pipelined),
        cmocka_unit_test(test_io_waits_for_the_port),
        cmocka_unit_test(test_io_buffers_run_out),
        cmocka_unit_test(test_io_completion_queue_full),
        cmocka_unit_test(test_io_other_commands),
        cmocka_unit_test(test_io_format),
        cmocka_unit_test(test_io_file),
        cmocka_unit_test(test_io_durable),
        cmocka_unit_test(test_io_store_fails),
        cmocka_unit_test(test_shutdown_of_a_store_that_fails),
        cmocka_unit_test(test_accesses_that_overlap),
        cmocka_unit_test(test_deallocate_is_a_hint),
        cmocka_unit_test(test_namespaces_are_apart),
        cmocka_unit_test(test_namespace_errors),
        cmocka_unit_test(test_namespace_attachment),
        cmocka_unit_test(test_namespace_management),
        cmocka_unit_test(test_namespaces_in_files),
        cmocka_unit_test(test_wipe_of_memory),
        cmocka_unit_test(test_medium),
        cmocka_unit_test(test_medium_of_a_disk),
        cmocka_unit_test(test_wipe_and_faults_of_a_file),
        cmocka_unit_test(test_deallocation),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_errors_of_io),
        cmocka_unit_test(test_errors_of_prps),
        cmocka_unit_test(test_sgl_all_sizes),
        cmocka_unit_test(test_sgl_in_the_command),
        cmocka_unit_test(test_sgl_errors),
        cmocka_unit_test(test_sgl_too_many_pieces),
        cmocka_unit_test(test_errors_of_dma),
        cmocka_unit_test(test_errors_fetching_entries_are_fatal),
        cmocka_unit_test(test_errors_completion_timeout),
        cmocka_unit_test(test_s110_completion_timeout_ranges),
        cmocka_unit_test(test_poison_messages_pending),
        cmocka_unit_test(test_aer_registers),
        cmocka_unit_test(test_aer_log),
        cmocka_unit_test(test_aer_messages),
        cmocka_unit_test(test_aer_kinds),
        cmocka_unit_test(test_aer_large_completions),
        cmocka_unit_test(test_aer_completions_of_earlier_requests),
        cmocka_unit_test(test_aer_is_sticky),
        cmocka_unit_test(test_errors_command_id_twice),
        cmocka_unit_test(test_doorbell_abuse),
        cmocka_unit_test(test_event_limit_and_temperature),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_delete_queue_with_commands),
        cmocka_unit_test(test_msix_masks),
        cmocka_unit_test(test_interrupts_off_for_a_queue),
        cmocka_unit_test(test_reset_during_io),
        cmocka_unit_test(test_reset_keeps_data_only),
        cmocka_unit_test(test_bus_master_enable),
        cmocka_unit_test(test_renumbered_while_busy),
        cmocka_unit_test(test_unexpected_completions),
        cmocka_unit_test(test_s160_many_are_under_way),
        cmocka_unit_test(test_cache_off_beside_a_write),
        cmocka_unit_test(test_s162_resets_fence_writes),
        cmocka_unit_test(test_s162_enabled_before_the_reset_is_over),
        cmocka_unit_test(test_s162_a_wipe_waits_for_writes),
        cmocka_unit_test(test_abort_of_a_deletion),
        cmocka_unit_test(test_abort_of_accesses),
        cmocka_unit_test(test_delete_queue_with_accesses),
        cmocka_unit_test(test_shutdown_takes_its_time),
        cmocka_unit_test(test_shutdown_overtaken_by_an_enabling),
        cmocka_unit_test(test_format_has_its_namespace_to_itself),
        cmocka_unit_test(test_s163_the_layout_lasts),
        cmocka_unit_test(test_s163_the_first_layout_lasts),
        cmocka_unit_test(test_s163_an_untouched_file_may_grow),
        cmocka_unit_test(test_s163_a_layout_that_does_not_fit),
        cmocka_unit_test(test_s163_a_layout_that_cannot_be_written),
        cmocka_unit_test(test_s164_a_failed_sync_stays),
        cmocka_unit_test(test_s164_one_of_two_syncs_is_given_the_error),
        cmocka_unit_test(test_u13_entries_come_with_the_doorbell),
        cmocka_unit_test(test_u13_what_was_pushed_is_used),
        cmocka_unit_test(test_u14_rules_end_with_their_queue),
        cmocka_unit_test(test_u10_rules_end_with_a_hot_reset),
        cmocka_unit_test(test_u2_fewer_rules_than_queues),
        cmocka_unit_test(test_cmb_registers),
        cmocka_unit_test(test_cmb_sizes),
        cmocka_unit_test(test_cmb_entries_need_no_request),
        cmocka_unit_test(test_cmb_data_and_lists),
        cmocka_unit_test(test_cmb_range),
        cmocka_unit_test(test_cmb_refuses_completion_queues),
        cmocka_unit_test(test_cmb_refuses_the_admin_completion_queue),
        cmocka_unit_test(test_cmb_resets),
        cmocka_unit_test(test_cmb_power_off),
        cmocka_unit_test(test_cmb_accesses),
        cmocka_unit_test(test_cmb_bounded_turn),
        cmocka_unit_test(test_cmb_bounded_copies),
        cmocka_unit_test(test_s161_a_cleared_buffer_leaves_outside_the_loop),
        cmocka_unit_test(test_s161_copies_of_one_of_many_functions),
        cmocka_unit_test(test_s161_short_reads_of_a_turn),
        cmocka_unit_test(test_fuzz),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
