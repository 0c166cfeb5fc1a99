/* unit_nvme_shared.c - NVMe controllers that share a subsystem: what they say of it, reservations
   by each type and role, their notices, and what outlives a reset, a lease and a loss of power
   SPDX-License-Identifier: MIT

   CONTENTS   1 Three hosts   2 What they say   3 Access   4 Registering   5 Acquiring
              6 Preempting   7 Releasing   8 Report and identifiers   9 Notices   10 Ends
              11 Persistence   12 Leases   13 Random */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "directory_sync.h"
#include "function.h"
#include "nvme.h"
#include "nvme_driver.h"

/* ==== 1  Three hosts ========================================================================== */

enum { A, B, C, HOSTS, MEM_KEYS = MEM_DATA + 0x8000 };
enum { CONFLICT = NVME_RESERVATION_CONFLICT | NVME_DNR, INVALID = NVME_INVALID_FIELD | NVME_DNR };
enum { REGISTER = 0x0d, REPORT = 0x0e, ACQUIRE = 0x11, RELEASE = 0x15 };
enum { UNREGISTER = 1, REPLACE = 2, PREEMPT = 1, ABORT = 2, CLEAR = 1, IGNORE = 8 };
#define KEY(host) (0x1000u + (host))

static driver *d[HOSTS];

static driver *open_one(unsigned host, const char *file, unsigned namespaces)
{
    driver *one;
    drv_subsystem = "s";
    drv_controller = host + 1;
    one = drv_open_set(file, namespaces, NULL);
    drv_boot(one, 1);
    return one;
}

/* The end of the last lease, or of one of several. */
static int end_by(unsigned host, int (*end)(void *device, bool begin))
{
    int how = end(d[host]->r.dev, true);
    while (how == DEVICE_WIPING)
        how = end(d[host]->r.dev, false);
    return how;
}

static uint16_t identify_host(unsigned host, uint64_t id, bool extended)
{
    dxpu_put_le64(d[host]->r.mem + MEM_DATA, id);
    dxpu_put_le64(d[host]->r.mem + MEM_DATA + 8, id ^ 0xff);
    return admin(d[host], 0x09, 0, 0x81, extended);
}

static void open_all(const char *file, unsigned namespaces)
{
    for (unsigned i = 0; i < HOSTS; i++)
        d[i] = open_one(i, file, namespaces);
}

static int setup(void **state)
{
    (void)state;
    open_all(NULL, 2);
    for (unsigned i = 0; i < HOSTS; i++)
        assert_int_equal(identify_host(i, 0xa0 + i, false), 0);
    return 0;
}

static void close_all(void)
{
    for (unsigned i = 0; i < HOSTS; i++)
        drv_close(d[i]);
}

static int teardown(void **state)
{
    (void)state;
    close_all();
    return 0;
}

static uint16_t reserve(unsigned host, uint8_t opcode, uint32_t dw10, uint64_t key, uint64_t other)
{
    sqe s = command(opcode, 1);
    s.dw[6] = MEM_LOW + MEM_KEYS;
    s.dw[10] = dw10;
    dxpu_put_le64(d[host]->r.mem + MEM_KEYS, key);
    dxpu_put_le64(d[host]->r.mem + MEM_KEYS + 8, other);
    return drv_do(d[host], 1, &s).status;
}

static void enroll(unsigned host)
{
    assert_int_equal(reserve(host, REGISTER, 0, 0, KEY(host)), 0);
}

static uint16_t acquire(unsigned host, unsigned type)
{
    return reserve(host, ACQUIRE, type << 8, KEY(host), 0);
}

static uint16_t preempt(unsigned host, unsigned type, unsigned victim)
{
    return reserve(host, ACQUIRE, type << 8 | PREEMPT, KEY(host), KEY(victim));
}

/* One block, or the command's range. */
static uint16_t io_of(unsigned host, uint8_t opcode)
{
    sqe s = command(opcode, 1);
    memset(d[host]->r.mem + MEM_DATA, 0, 512);
    if (opcode == 0x09) {
        s.dw[11] = 4;
        dxpu_put_le32(d[host]->r.mem + MEM_DATA + 4, 1);
    }
    return drv_do(d[host], 1, &s).status;
}

static bool may_write(unsigned host)
{
    return io_of(host, 0x01) == 0;
}

static const nvme_reservation *reservation(void)
{
    return model(d[A])->subsystem->reservation;
}

/* ==== 2  What they say ======================================================================== */

static void test_one_subsystem_of_three_controllers(void **state)
{
    uint8_t *p, nqn[256];
    (void)state;
    for (unsigned i = 0; i < HOSTS; i++) {
        p = d[i]->r.mem + MEM_DATA;
        assert_int_equal(admin(d[i], 0x06, 0, 1, 0), 0);
        assert_int_equal(p[76], 2);                     /* CMIC */
        assert_int_equal(dxpu_get_le16(p + 78), i + 1); /* CNTLID */
        assert_int_equal(dxpu_get_le32(p + 96) & 1, 1); /* identifiers of 128 bits */
        assert_int_equal(dxpu_get_le16(p + 256), 8);    /* Namespace Management, no Format */
        assert_int_equal(dxpu_get_le16(p + 520) & 0x20, 0x20);
        if (i == 0)
            memcpy(nqn, p + 768, sizeof nqn);
        assert_memory_equal(nqn, p + 768, sizeof nqn);
        assert_int_equal(admin(d[i], 0x06, 1, 0, 0), 0);
        assert_int_equal(p[30], 1);    /* NMIC */
        assert_int_equal(p[31], 0xff); /* RESCAP */
        assert_int_equal(admin(d[i], 0x06, 1, 0x12, 0), 0);
        assert_memory_equal(p, "\3\0\1\0\2\0\3\0\0", 9);
        assert_int_equal(admin(d[i], 0x06, 0, 2u << 16 | 0x13, 0), 0);
        assert_memory_equal(p, "\2\0\2\0\3\0\0", 7);
        assert_int_equal(admin(d[i], 0x0d, 1, 1, 0), NVME_DENIED | NVME_DNR); /* others use it */
        dxpu_put_le64(p, 8);
        dxpu_put_le64(p + 8, 8);
        memset(p + 16, 0, 64);
        assert_int_equal(admin(d[i], 0x0d, 0, 0, 0), NVME_DENIED | NVME_DNR);
        assert_int_equal(admin(d[i], 0x80, 1, 0, 0), NVME_INVALID_OPCODE | NVME_DNR);
        assert_int_equal(admin(d[i], 0x02, 0, 15u << 16 | 5, 0), 0);
    }
    assert_int_not_equal(cfg_read(&d[A]->r, 0x14c), cfg_read(&d[B]->r, 0x14c)); /* PCI serials */
}

/* The control: a controller that shares nothing. */
static void test_alone_it_has_no_reservations(void **state)
{
    driver *one;
    sqe s = command(REPORT, 1);
    (void)state;
    drv_subsystem = NULL;
    drv_controller = 0;
    one = drv_up(1);
    assert_int_equal(admin(one, 0x06, 0, 1, 0), 0);
    assert_int_equal(one->r.mem[MEM_DATA + 76], 0);
    assert_int_equal(dxpu_get_le16(one->r.mem + MEM_DATA + 78), 1);
    assert_int_equal(dxpu_get_le16(one->r.mem + MEM_DATA + 520) & 0x20, 0);
    assert_int_equal(drv_do(one, 1, &s).status, NVME_INVALID_OPCODE | NVME_DNR);
    assert_int_equal(admin(one, 0x09, 0, 0x81, 0), INVALID);
    assert_int_equal(admin(one, 0x02, 0, 15u << 16 | 0x80, 0), NVME_INVALID_LOG | NVME_DNR);
    drv_close(one);
}

static void test_they_see_each_others_data(void **state)
{
    sqe s = command(0x01, 2);
    (void)state;
    s.dw[10] = 7;
    memset(d[A]->r.mem + MEM_DATA, 0x5a, 512);
    assert_int_equal(drv_do(d[A], 1, &s).status, 0);
    s.dw[0] = 2;
    assert_int_equal(drv_do(d[C], 1, &s).status, 0);
    assert_memory_equal(d[C]->r.mem + MEM_DATA, d[A]->r.mem + MEM_DATA, 512);
}

/* Status of an attachment to, or detachment from, this many controllers from `first` on. */
static uint16_t attach(unsigned host, bool on, unsigned first, unsigned count)
{
    uint8_t *p = d[host]->r.mem + MEM_DATA;
    memset(p, 0, NVME_PAGE_BYTES);
    dxpu_put_le16(p, count);
    for (unsigned i = 0; i < count; i++)
        dxpu_put_le16(p + 2 + 2 * (size_t)i, first + i);
    return admin(d[host], 0x15, 1, !on, 0);
}

static uint32_t event_of(unsigned host);
static void want_events(unsigned host);

static void test_attachment_is_each_controllers(void **state)
{
    const uint8_t *p = d[C]->r.mem + MEM_DATA;
    (void)state;
    for (unsigned i = 0; i < HOSTS; i++) {
        assert_int_equal(admin(d[i], 0x09, 0, 0x0b, 0x100), 0);
        want_events(i);
    }
    assert_int_equal(attach(A, true, 2, 1), NVME_ALREADY_ATTACHED | NVME_DNR);
    assert_int_equal(attach(A, false, 0, 1), NVME_CONTROLLER_LIST | NVME_DNR);
    assert_int_equal(attach(A, false, 3, 2), NVME_CONTROLLER_LIST | NVME_DNR); /* there is no 4 */
    assert_int_equal(attach(A, false, 1, 0), NVME_CONTROLLER_LIST | NVME_DNR);
    model(d[A])->subsystem->detached_count = NVME_DETACHED - 1; /* there is place for one */
    assert_int_equal(attach(A, false, 2, 2), NVME_INTERNAL_ERROR);
    assert_int_equal(model(d[A])->subsystem->detached_count, NVME_DETACHED - 1);
    assert_true(may_write(B));
    model(d[A])->subsystem->detached_count = 0;
    assert_int_equal(attach(A, false, 2, 2), 0); /* from B and C */
    assert_int_equal(event_of(A), 0);
    for (unsigned i = B; i < HOSTS; i++) {
        assert_int_equal(event_of(i), 0x040002); /* namespaces have changed */
        assert_int_equal(io_of(i, 0x02), INVALID);
        assert_int_equal(admin(d[i], 0x02, 0, 15u << 16 | 4, 0), 0);
        assert_int_equal(dxpu_get_le32(d[i]->r.mem + MEM_DATA), 1);
        want_events(i);
    }
    assert_true(may_write(A));
    assert_int_equal(attach(C, false, 1, 2), NVME_NOT_ATTACHED | NVME_DNR);
    assert_true(may_write(A)); /* all or none */
    assert_int_equal(admin(d[C], 0x06, 1, 0x12, 0), 0);
    assert_memory_equal(p, "\1\0\1\0\0", 5);
    assert_int_equal(attach(B, true, 3, 1), 0);
    assert_int_equal(event_of(C), 0x040002);
    assert_true(may_write(C));
    nvme_kind.reset(d[B]->r.dev); /* it is the slot's, not the driver's */
    assert_false(model(d[B])->ns[0].is.attached);
    assert_int_equal(nvme_kind.leave(d[B]->r.dev, true), DEVICE_WIPED);
    assert_true(model(d[B])->ns[0].is.attached); /* for whoever comes next */
}

/* ==== 3  Access =============================================================================== */

/* Rows: what a holder, a registrant and another host may.  NVMe 1.4, 8.8, figure of commands. */
static void test_what_each_type_allows(void **state)
{
    static const struct {
        bool registrant_reads, registrant_writes, other_reads, other_writes;
    } rows[7] = {
        [1] = { true, false, true, false }, [2] = { false, false, false, false },
        [3] = { true, true, true, false },  [4] = { true, true, false, false },
        [5] = { true, true, true, false },  [6] = { true, true, false, false },
    };
    static const uint8_t reads[] = { 0x02, 0x05, 0x0c }, writes[] = { 0x00, 0x01, 0x08, 0x09 };
    (void)state;
    for (unsigned type = 1; type <= 6; type++) {
        enroll(A);
        enroll(B);
        assert_int_equal(acquire(A, type), 0);
        for (unsigned i = 0; i < sizeof reads; i++) {
            assert_int_equal(io_of(A, reads[i]), 0);
            assert_int_equal(io_of(B, reads[i]), rows[type].registrant_reads ? 0 : CONFLICT);
            assert_int_equal(io_of(C, reads[i]), rows[type].other_reads ? 0 : CONFLICT);
        }
        for (unsigned i = 0; i < sizeof writes; i++) {
            assert_int_equal(io_of(A, writes[i]), 0);
            assert_int_equal(io_of(B, writes[i]), rows[type].registrant_writes ? 0 : CONFLICT);
            assert_int_equal(io_of(C, writes[i]), rows[type].other_writes ? 0 : CONFLICT);
        }
        assert_int_equal(reserve(A, RELEASE, CLEAR, KEY(A), 0), 0);
        assert_true(may_write(B) && may_write(C)); /* the control */
    }
}

/* The same figure: it is of the commands that write.  Else whoever is fenced takes the namespace
   from its holder. */
static void test_attachment_is_as_a_write(void **state)
{
    (void)state;
    for (unsigned type = 1; type <= 6; type++) {
        enroll(A);
        enroll(B);
        assert_int_equal(acquire(A, type), 0);
        for (unsigned host = A; host <= C; host++) {
            bool may = may_write(host);
            assert_int_equal(attach(host, false, A + 1, 1), may ? 0 : CONFLICT);
            assert_int_equal(attach(host, true, A + 1, 1), may ? 0 : CONFLICT);
        }
        assert_int_equal(reserve(A, RELEASE, CLEAR, KEY(A), 0), 0);
        assert_int_equal(attach(C, false, A + 1, 1), 0); /* the control */
        assert_int_equal(attach(C, true, A + 1, 1), 0);
    }
}

static void test_a_flush_of_all_conflicts_with_one(void **state)
{
    sqe s = command(0x00, NVME_NSID_ALL);
    (void)state;
    assert_int_equal(drv_do(d[B], 1, &s).status, 0);
    enroll(A);
    assert_int_equal(acquire(A, 1), 0);
    assert_int_equal(drv_do(d[B], 1, &s).status, CONFLICT);
    s.dw[1] = 2; /* none holds the other namespace */
    assert_int_equal(drv_do(d[B], 1, &s).status, 0);
}

/* ==== 4  Registering ========================================================================== */

static void test_registering(void **state)
{
    (void)state;
    assert_int_equal(reserve(A, REGISTER, UNREGISTER, 0, 0), CONFLICT);
    assert_int_equal(reserve(A, REGISTER, REPLACE | IGNORE, 0, 5), CONFLICT);
    assert_int_equal(reservation()->generation, 0);
    enroll(A);
    enroll(A); /* the same key again */
    assert_int_equal(reservation()->generation, 2);
    assert_int_equal(reserve(A, REGISTER, 0, 0, 7), CONFLICT);
    assert_int_equal(reserve(A, REGISTER, REPLACE, 9, 7), CONFLICT);
    assert_int_equal(reserve(A, REGISTER, REPLACE, KEY(A), 7), 0);
    assert_int_equal(reserve(A, REGISTER, REPLACE | IGNORE, 9, 8), 0);
    assert_int_equal(reserve(A, REGISTER, UNREGISTER, 7, 0), CONFLICT);
    assert_int_equal(reserve(A, REGISTER, UNREGISTER, 8, 0), 0);
    assert_int_equal(reservation()->count, 0);
    assert_int_equal(reservation()->generation, 5);
    assert_int_equal(reserve(A, REGISTER, 3, 0, 1), INVALID);
    assert_int_equal(reserve(A, REGISTER, 1u << 30, 0, 1), INVALID); /* CPTPL 01b */
}

/* Two controllers of one host are one registrant. */
static void test_a_host_has_several_controllers(void **state)
{
    (void)state;
    assert_int_equal(identify_host(B, 0xa0, false), 0);
    enroll(A);
    assert_int_equal(acquire(A, 2), 0);
    assert_true(may_write(B));
    assert_false(may_write(C));
    assert_int_equal(reserve(B, RELEASE, 2 << 8, KEY(A), 0), 0);
    assert_true(may_write(C));
}

/* Hosts are made up at will by one: they leave room for others. */
static void test_one_controller_does_not_fill_the_table(void **state)
{
    uint16_t status = 0;
    unsigned count = 0;
    (void)state;
    for (unsigned i = 0; !status && i < 200; i++, count++) {
        assert_int_equal(identify_host(A, 0x1000 + i, false), 0);
        status = reserve(A, REGISTER, 0, 0, 1);
    }
    assert_int_equal(status, NVME_INTERNAL_ERROR);
    assert_int_equal(count, NVME_REGISTRANTS_EACH + 1);
    enroll(B);
}

/* ==== 5  Acquiring ============================================================================ */

static void test_acquiring(void **state)
{
    (void)state;
    assert_int_equal(acquire(A, 1), CONFLICT); /* no registrant */
    enroll(A);
    enroll(B);
    assert_int_equal(reserve(A, ACQUIRE, 1 << 8, 9, 0), CONFLICT); /* another key */
    for (unsigned type = 1; type <= 6; type++) {
        assert_int_equal(acquire(A, type), 0);
        assert_int_equal(acquire(A, type), 0); /* again */
        assert_int_equal(acquire(A, type % 6 + 1), CONFLICT);
        assert_int_equal(acquire(B, type), type >= 5 ? 0 : CONFLICT); /* all registrants hold it */
        assert_int_equal(acquire(C, type), CONFLICT);
        assert_int_equal(reserve(A, RELEASE, type << 8, KEY(A), 0), 0);
        assert_int_equal(reservation()->type, 0);
    }
    assert_int_equal(acquire(A, 0), INVALID);
    assert_int_equal(acquire(A, 7), INVALID);
    assert_int_equal(reserve(A, ACQUIRE, 1 << 8 | 3, KEY(A), 0), INVALID);
    assert_int_equal(reserve(A, ACQUIRE, 1 << 8 | IGNORE, KEY(A), 0), INVALID);
}

/* ==== 6  Preempting =========================================================================== */

static void test_preempting_the_holder(void **state)
{
    (void)state;
    for (unsigned type = 1; type <= 4; type++) {
        enroll(A);
        enroll(B);
        assert_int_equal(acquire(A, type), 0);
        assert_int_equal(preempt(C, type, A), CONFLICT); /* no registrant */
        assert_int_equal(preempt(B, type % 4 + 1, A), 0);
        assert_int_equal(reservation()->type, type % 4 + 1);
        assert_int_equal(reservation()->count, 1);
        assert_true(may_write(B));
        assert_false(may_write(A));
        assert_int_equal(reserve(A, RELEASE, type << 8, KEY(A), 0), CONFLICT);
        assert_int_equal(reserve(B, RELEASE, CLEAR, KEY(B), 0), 0);
    }
}

static void test_preempting_registrants(void **state)
{
    (void)state;
    enroll(A);
    enroll(B);
    enroll(C);
    assert_int_equal(preempt(A, 1, B), 0); /* nothing is held: the registration goes */
    assert_int_equal(reservation()->type, 0);
    assert_int_equal(reservation()->count, 2);
    assert_int_equal(preempt(A, 1, B), CONFLICT);
    assert_int_equal(acquire(A, 3), 0);
    enroll(B);
    assert_int_equal(preempt(B, 1, C), 0); /* no holder: it stays A's */
    assert_int_equal(reservation()->type, 3);
    assert_int_equal(reserve(B, ACQUIRE, 1 << 8 | PREEMPT, KEY(B), 0), INVALID);
    assert_int_equal(preempt(A, 1, A), 0); /* one's own: another type */
    assert_int_equal(reservation()->type, 1);
    assert_int_equal(reservation()->count, 2);
    assert_int_equal(reserve(A, RELEASE, CLEAR, KEY(A), 0), 0);
    for (unsigned type = 5; type <= 6; type++) {
        enroll(A);
        enroll(B);
        enroll(C);
        assert_int_equal(acquire(A, type), 0);
        assert_int_equal(preempt(A, 1, B), 0);
        assert_int_equal(reservation()->type, type);
        assert_int_equal(reserve(C, ACQUIRE, 2 << 8 | PREEMPT, KEY(C), 0), 0); /* all others */
        assert_int_equal(reservation()->count, 1);
        assert_int_equal(reservation()->type, 2);
        assert_true(may_write(C));
        assert_false(may_write(A));
        assert_int_equal(reserve(C, RELEASE, CLEAR, KEY(C), 0), 0);
    }
}

static job *under_way, *ended;

static void slow_submit(void *user, job *j)
{
    (void)user;
    assert_null(under_way);
    under_way = j;
}

static job *slow_reap(void *user)
{
    job *j = ended;
    (void)user;
    ended = NULL;
    return j;
}

static bool slow_cancel(void *user, job *j)
{
    (void)user;
    (void)j;
    return false; /* it has begun */
}

static void slow_settle(void *user)
{
    (void)user;
    if (under_way)
        under_way->run(under_way);
    ended = under_way ? under_way : ended;
    under_way = NULL;
}

static const jobs slow = { NULL, slow_submit, slow_reap, slow_cancel, slow_settle };

/* The host's controller is another one, whose accesses take until slow_settle(). */
static void reopen_slow(unsigned host, const char *file, unsigned namespaces)
{
    drv_close(d[host]);
    drv_jobs = &slow;
    d[host] = open_one(host, file, namespaces);
    drv_jobs = NULL;
}

static uint16_t send(unsigned host, unsigned q, const sqe *s)
{
    uint16_t cid = drv_send(d[host], q, s);
    drv_ring(d[host], q);
    rc_run(&d[host]->r);
    return cid;
}

/* A write of A is under way when B preempts it: B's command is over when the write is, and what A
   asked for since never comes to the medium. */
static void preempt_a_write(bool reset_before, unsigned how)
{
    result res;
    sqe s = command(0x01, 1);
    uint16_t cid;
    reopen_slow(A, NULL, 2);
    assert_int_equal(identify_host(A, 0xa0, false), 0);
    enroll(A);
    enroll(B);
    assert_int_equal(acquire(A, 1), 0);
    cid = send(A, 1, &s);
    assert_non_null(under_way);
    if (reset_before)
        reg_set32(&d[A]->r, 0x14, 0); /* its host has crashed, and another boots */
    s = command(ACQUIRE, 1);
    s.dw[6] = MEM_LOW + MEM_KEYS;
    s.dw[10] = 1 << 8 | how;
    dxpu_put_le64(d[B]->r.mem + MEM_KEYS, KEY(B));
    dxpu_put_le64(d[B]->r.mem + MEM_KEYS + 8, KEY(A));
    (void)send(B, 1, &s);
    assert_int_equal(drv_reap(d[B], 1, &res), how == PREEMPT); /* the control: without abort */
    slow_settle(NULL);
    nvme_kind.tick(d[B]->r.dev, 1000);
    rc_run(&d[B]->r);
    assert_int_equal(drv_reap(d[B], 1, &res), how == ABORT);
    assert_int_equal(res.status, 0);
    drv_consumed(d[B], 1);
    if (reset_before)
        return;
    nvme_kind.tick(d[A]->r.dev, 1000);
    rc_run(&d[A]->r);
    assert_true(drv_reap(d[A], 1, &res));
    assert_int_equal(res.cid, cid);
    assert_int_equal(res.status, how == ABORT ? NVME_PREEMPTED : 0);
}

static void test_preempt_and_abort_waits(void **state)
{
    (void)state;
    preempt_a_write(false, ABORT);
}

static void test_preempt_and_abort_after_a_crash(void **state)
{
    (void)state;
    preempt_a_write(true, ABORT);
}

static void test_preempt_does_not_wait(void **state)
{
    (void)state;
    preempt_a_write(false, PREEMPT);
}

/* The write's host deletes its queue, as drivers do that give up, or becomes another host: the
   write is in a thread still, and B's command must not be over before. */
static void test_what_was_preempted_is_waited_for_whatever_its_host_does(void **state)
{
    result res;
    sqe s = command(0x01, 1);
    (void)state;
    reopen_slow(A, NULL, 2);
    assert_int_equal(identify_host(A, 0xa0, false), 0);
    enroll(A);
    enroll(B);
    assert_int_equal(acquire(A, 1), 0);
    (void)send(A, 1, &s);
    assert_non_null(under_way);
    assert_int_equal(identify_host(A, 0xaa, false), NVME_SEQUENCE_ERROR | NVME_DNR);
    assert_int_equal(identify_host(A, 0xa0, false), 0); /* the control: the same */
    s = command(ACQUIRE, 1);
    s.dw[6] = MEM_LOW + MEM_KEYS;
    s.dw[10] = 1 << 8 | ABORT;
    dxpu_put_le64(d[B]->r.mem + MEM_KEYS, KEY(B));
    dxpu_put_le64(d[B]->r.mem + MEM_KEYS + 8, KEY(A));
    (void)send(B, 1, &s);
    s = command(0x00, 0); /* Delete I/O Submission Queue */
    s.dw[10] = 1;
    (void)send(A, 0, &s);
    nvme_kind.tick(d[B]->r.dev, 1000);
    rc_run(&d[B]->r);
    assert_false(drv_reap(d[B], 1, &res));
    slow_settle(NULL);
    nvme_kind.tick(d[A]->r.dev, 1000);
    rc_run(&d[A]->r);
    assert_true(drv_reap(d[A], 0, &res));
    assert_int_equal(res.status, 0);
    drv_consumed(d[A], 0);
    nvme_kind.tick(d[B]->r.dev, 1000);
    rc_run(&d[B]->r);
    assert_true(drv_reap(d[B], 1, &res));
    assert_int_equal(res.status, 0);
    drv_consumed(d[B], 1);
    assert_int_equal(identify_host(A, 0xaa, false), 0); /* now it may */
}

/* ==== 7  Releasing ============================================================================ */

static void test_releasing(void **state)
{
    (void)state;
    assert_int_equal(reserve(A, RELEASE, 1 << 8, KEY(A), 0), CONFLICT);
    enroll(A);
    enroll(B);
    assert_int_equal(reserve(A, RELEASE, 1 << 8, KEY(A), 0), 0); /* nothing is held */
    assert_int_equal(acquire(A, 1), 0);
    assert_int_equal(reserve(B, RELEASE, 1 << 8, KEY(B), 0), 0); /* not by it: no effect */
    assert_int_equal(reservation()->type, 1);
    assert_int_equal(reserve(A, RELEASE, 2 << 8, KEY(A), 0), INVALID);
    assert_int_equal(reserve(A, RELEASE, 1 << 8, 9, 0), CONFLICT);
    assert_int_equal(reserve(A, RELEASE, 1 << 8 | IGNORE, KEY(A), 0), INVALID);
    assert_int_equal(reserve(A, RELEASE, 2, KEY(A), 0), INVALID);
    assert_int_equal(reserve(B, RELEASE, CLEAR, KEY(B), 0), 0); /* any registrant may */
    assert_int_equal(reservation()->count, 0);
    for (unsigned type = 1; type <= 6; type++) { /* with the registration */
        enroll(A);
        enroll(B);
        assert_int_equal(acquire(A, type), 0);
        assert_int_equal(reserve(A, REGISTER, UNREGISTER, KEY(A), 0), 0);
        assert_int_equal(reservation()->type, type >= 5 ? type : 0); /* B holds it still */
        assert_int_equal(reserve(B, REGISTER, UNREGISTER, KEY(B), 0), 0);
        assert_int_equal(reservation()->type, 0);
    }
}

/* ==== 8  Report and identifiers =============================================================== */

static uint16_t report_to(unsigned host, uint32_t dwords, bool extended)
{
    sqe s = command(REPORT, 1);
    s.dw[10] = dwords - 1;
    s.dw[11] = extended;
    memset(d[host]->r.mem + MEM_DATA, 0xee, 512);
    return drv_do(d[host], 1, &s).status;
}

static void test_report(void **state)
{
    const uint8_t *p = d[C]->r.mem + MEM_DATA;
    uint64_t errors;
    (void)state;
    enroll(A);
    enroll(B);
    assert_int_equal(acquire(B, 3), 0);
    assert_int_equal(report_to(C, 32, false), 0);
    assert_int_equal(dxpu_get_le32(p), 2); /* generation */
    assert_int_equal(p[4], 3);
    assert_int_equal(dxpu_get_le16(p + 5), 2);
    assert_int_equal(p[9], 0);
    assert_int_equal(dxpu_get_le16(p + 24), 1);
    assert_int_equal(p[26], 0);
    assert_int_equal(dxpu_get_le64(p + 32), 0xa0);
    assert_int_equal(dxpu_get_le64(p + 40), KEY(A));
    assert_int_equal(dxpu_get_le16(p + 48), 2);
    assert_int_equal(p[50], 1); /* it holds */
    assert_int_equal(dxpu_get_le64(p + 64), KEY(B));
    assert_int_equal(p[72], 0);
    assert_int_equal(p[128], 0xee); /* no more than was asked for */
    assert_int_equal(report_to(C, 12, false), 0);
    assert_int_equal(dxpu_get_le16(p + 5), 2); /* there are more than it took */
    assert_int_equal(p[48], 0xee);
    assert_int_equal(report_to(C, 1, false), 0);
    assert_int_equal(report_to(C, 1 << 20, false), INVALID);
    /* Linux's driver asks for 64 bits after this status alone, without DNR, without More */
    errors = model(d[C])->error_count;
    assert_int_equal(report_to(C, 32, true), NVME_HOST_FORMAT);
    assert_int_equal(model(d[C])->error_count, errors);
    assert_int_equal(report_to(C, 1 << 20, false), INVALID); /* the control */
    assert_int_equal(model(d[C])->error_count, errors + 1);
}

/* Of a table that is mostly zeros, too: all commands together have so much memory. */
static void test_report_waits_for_a_buffer(void **state)
{
    result res;
    sqe s = command(REPORT, 1);
    nvme *n = model(d[C]);
    (void)state;
    s.dw[8] = s.dw[6] + NVME_PAGE_BYTES;
    s.dw[10] = 2 * NVME_PAGE_BYTES / 4 - 1;
    n->buffer_bytes += NVME_BUFFER_BYTES; /* others have it */
    (void)send(C, 1, &s);
    assert_false(drv_reap(d[C], 1, &res));
    n->buffer_bytes -= NVME_BUFFER_BYTES;
    nvme_kind.tick(d[C]->r.dev, 1000);
    rc_run(&d[C]->r);
    assert_true(drv_reap(d[C], 1, &res));
    assert_int_equal(res.status, 0);
    drv_consumed(d[C], 1);
}

static void test_identifiers_of_128_bits(void **state)
{
    const uint8_t *p = d[A]->r.mem + MEM_DATA;
    (void)state;
    assert_int_equal(identify_host(A, 0xb0, true), NVME_HOST_FORMAT | NVME_DNR);
    assert_int_equal(identify_host(A, 0, false), 0);
    assert_int_equal(identify_host(B, 0, false), 0);
    assert_int_equal(identify_host(C, 0xb2, true), 0); /* it was the last with the other format */
    assert_int_equal(identify_host(A, 0xb0, true), 0);
    assert_int_equal(identify_host(B, 0xb1, false), NVME_HOST_FORMAT | NVME_DNR);
    enroll(A);
    assert_int_equal(acquire(A, 6), 0);
    assert_int_equal(report_to(A, 64, false), NVME_HOST_FORMAT);
    assert_int_equal(report_to(A, 64, true), 0);
    assert_int_equal(dxpu_get_le16(p + 5), 1);
    assert_int_equal(dxpu_get_le16(p + 64), 1);
    assert_int_equal(p[66], 1);
    assert_int_equal(dxpu_get_le64(p + 72), KEY(A));
    assert_int_equal(dxpu_get_le64(p + 80), 0xb0);
    assert_int_equal(dxpu_get_le64(p + 88), 0xb0 ^ 0xff);
    assert_int_equal(admin(d[A], 0x0a, 0, 0x81, 0), NVME_HOST_FORMAT | NVME_DNR); /* a half */
    assert_int_equal(admin(d[A], 0x0a, 0, 0x81, 1), 0);
    assert_int_equal(dxpu_get_le64(p + 8), 0xb0 ^ 0xff);
    assert_int_equal(admin(d[A], 0x09, 1, 0x81, 1), NVME_NOT_PER_NAMESPACE | NVME_DNR);
    assert_int_equal(admin(d[A], 0x09, 0, 1u << 31 | 0x81, 1), NVME_NOT_SAVEABLE | NVME_DNR);
    assert_int_equal(admin(d[A], 0x09, 0, 0x81, 2), INVALID);
}

/* Linux sets none: each controller is a host of its own then, until it is reset. */
static void test_hosts_without_an_identifier(void **state)
{
    (void)state;
    assert_int_equal(identify_host(A, 0, false), 0);
    assert_int_equal(identify_host(B, 0, false), 0);
    enroll(A);
    assert_int_equal(acquire(A, 1), 0);
    assert_false(may_write(B));
    assert_int_equal(report_to(C, 32, false), 0);
    assert_int_equal(dxpu_get_le16(d[C]->r.mem + MEM_DATA + 24), 1);
    reg_set32(&d[A]->r, 0x14, 0);
    assert_int_equal(reservation()->count, 0);
    assert_true(may_write(B));
}

/* ==== 9  Notices ============================================================================== */

/* The event that has come to a host, of its one request; 0: none. */
static uint32_t event_of(unsigned host)
{
    result res;
    nvme_kind.tick(d[host]->r.dev, 1000);
    rc_run(&d[host]->r);
    if (!drv_reap(d[host], 0, &res))
        return 0;
    drv_consumed(d[host], 0);
    return res.dw0;
}

static void want_events(unsigned host)
{
    sqe s = command(0x0c, 0);
    (void)send(host, 0, &s);
}

/* Type and namespace of the oldest notice, and how many are behind it. */
static void notice_is(unsigned host, unsigned type, unsigned behind)
{
    const uint8_t *p = d[host]->r.mem + MEM_DATA;
    assert_int_equal(event_of(host), 0x800006);
    assert_int_equal(admin(d[host], 0x02, 0, 15u << 16 | 0x80, 0), 0);
    assert_int_equal(p[8], type);
    assert_int_equal(p[9], behind);
    assert_int_equal(dxpu_get_le32(p + 12), 1);
    assert_int_not_equal(dxpu_get_le64(p), 0);
    want_events(host);
}

static void test_notices(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HOSTS; i++) {
        enroll(i);
        want_events(i);
    }
    assert_int_equal(acquire(A, 3), 0);
    assert_int_equal(event_of(B), 0);
    assert_int_equal(reserve(A, RELEASE, 3 << 8, KEY(A), 0), 0); /* registrants had access by it */
    assert_int_equal(event_of(A), 0);
    notice_is(B, 2, 0);
    notice_is(C, 2, 0);
    assert_int_equal(acquire(A, 1), 0);
    assert_int_equal(reserve(A, RELEASE, 1 << 8, KEY(A), 0), 0); /* the control: none had */
    assert_int_equal(event_of(B), 0);
    assert_int_equal(acquire(A, 2), 0);
    assert_int_equal(preempt(B, 2, A), 0);
    notice_is(A, 1, 0);
    assert_int_equal(event_of(C), 0);
    assert_int_equal(reserve(B, RELEASE, CLEAR, KEY(B), 0), 0);
    notice_is(C, 3, 0);
    assert_int_equal(event_of(A), 0); /* it is no registrant any more */
    assert_int_equal(event_of(B), 0);
    assert_int_equal(admin(d[A], 0x02, 0, 15u << 16 | 0x80, 0), 0); /* an empty page */
    assert_int_equal(d[A]->r.mem[MEM_DATA + 8], 0);
}

static unsigned woken;

static void on_wake(void *user)
{
    for (unsigned i = 0; i < HOSTS; i++)
        woken |= (unsigned)(user == &d[i]->r) << i;
}

/* A loop that serves only slots with work serves these, too. */
static void test_what_gives_another_controller_work_wakes_it(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HOSTS; i++) {
        d[i]->r.port.wake = on_wake;
        enroll(i);
    }
    want_events(B);
    woken = 0;
    assert_int_equal(acquire(A, 3), 0);
    assert_int_equal(woken, 1 << A); /* the control: it is of A alone */
    assert_int_equal(reserve(A, RELEASE, 3 << 8, KEY(A), 0), 0);
    assert_int_equal(woken, 1 << A | 1 << B); /* C waits for no event */
    notice_is(B, 2, 0);
}

static void test_notices_wait_and_can_be_masked(void **state)
{
    (void)state;
    enroll(A);
    enroll(B);
    enroll(C);
    assert_int_equal(admin(d[C], 0x09, NVME_NSID_ALL, 0x82, 0x4), 0); /* not of releases */
    assert_int_equal(admin(d[C], 0x0a, 1, 0x82, 0), 0);
    assert_int_equal(admin(d[C], 0x09, 1, 0x82, 0x1), INVALID);
    want_events(B);
    want_events(C);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(acquire(A, 5), 0);
        assert_int_equal(reserve(A, RELEASE, 5 << 8, KEY(A), 0), 0);
    }
    assert_int_equal(event_of(C), 0);
    for (unsigned i = 3; i-- > 0;)
        notice_is(B, 2, i);
    assert_int_equal(event_of(B), 0);
    for (unsigned i = 0; i < NVME_NOTICES + 8; i++) { /* more than are kept */
        assert_int_equal(acquire(A, 5), 0);
        assert_int_equal(reserve(A, RELEASE, 5 << 8, KEY(A), 0), 0);
    }
    notice_is(B, 2, NVME_NOTICES - 1);
}

/* ==== 10  Ends ================================================================================ */

/* The holder's controller is reset in each way: what it holds stays, and others' I/O goes on. */
static void test_a_reset_is_one_controllers(void **state)
{
    (void)state;
    enroll(A);
    enroll(B);
    assert_int_equal(acquire(A, 2), 0);
    for (unsigned how = 0; how < 3; how++) {
        const dxpu_event down = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
        const dxpu_event up = { .type = DXPU_EVENT_HOT_RESET };
        if (how == 0) {
            reg_set32(&d[A]->r, 0x14, 0);
        } else if (how == 1) {
            nvme_kind.event(d[A]->r.dev, &down);
            nvme_kind.event(d[A]->r.dev, &up);
        } else {
            nvme_kind.reset(d[A]->r.dev); /* its host is gone */
        }
        assert_int_equal(reservation()->type, 2);
        assert_false(may_write(B));
        assert_int_equal(io_of(B, 0x02), CONFLICT);
        assert_int_equal(report_to(B, 32, false), 0);
        assert_int_equal(dxpu_get_le16(d[B]->r.mem + MEM_DATA + 24), 0xffff); /* of no controller */
        assert_int_equal(d[B]->r.mem[MEM_DATA + 26], 1);
        drv_boot(d[A], 1);
        assert_false(may_write(A)); /* it may be another host's now */
        assert_int_equal(identify_host(A, 0xa0, false), 0);
        assert_true(may_write(A));
    }
    nvme_kind.reset(d[A]->r.dev);
    assert_int_equal(preempt(B, 1, A), 0); /* as fence agents do */
    assert_true(may_write(B));
}

/* ==== 11  Persistence ========================================================================= */

static char disk[] = "/tmp/dxpu_shared_XXXXXX", beside[64], aside[64];

static int setup_disk(void **state)
{
    int fd;
    (void)state;
    memcpy(disk + sizeof disk - 7, "XXXXXX", 6);
    fd = mkstemp(disk);
    assert_true(fd >= 0 && !ftruncate(fd, STORE_BYTES) && pwrite(fd, "x", 1, 4096) == 1);
    assert_int_equal(close(fd), 0);
    snprintf(beside, sizeof beside, "%s.reservations", disk);
    snprintf(aside, sizeof aside, "%s.aside", disk);
    open_all(disk, 0);
    for (unsigned i = 0; i < HOSTS; i++)
        assert_int_equal(identify_host(i, 0xa0 + i, false), 0);
    return 0;
}

static int teardown_disk(void **state)
{
    char layout[64];
    (void)state;
    close_all();
    snprintf(layout, sizeof layout, "%s.layout", disk);
    (void)unlink(layout);
    (void)unlink(beside);
    return unlink(disk);
}

/* The box is off, and on again. */
static void lose_power(void)
{
    close_all();
    open_all(disk, 0);
    for (unsigned i = 0; i < HOSTS; i++)
        assert_int_equal(identify_host(i, 0xa0 + i, false), 0);
}

static uint16_t persist(unsigned host, bool on)
{
    return reserve(host, REGISTER, (on ? 3u : 2u) << 30 | REPLACE, KEY(host), KEY(host));
}

static void test_persist_through_power_loss(void **state)
{
    (void)state;
    for (unsigned type = 1; type <= 6; type++) {
        enroll(A);
        enroll(B);
        assert_int_equal(acquire(A, type), 0);
        assert_int_equal(persist(B, true), 0);
        lose_power();
        assert_int_equal(reservation()->type, type);
        assert_int_equal(reservation()->count, 2);
        assert_true(reservation()->persists);
        assert_true(may_write(A));
        assert_false(may_write(C));
        assert_int_equal(admin(d[A], 0x09, 1, 0x83, 0), 0);
        lose_power();
        assert_int_equal(reservation()->count, 0); /* the control */
        assert_true(may_write(C));
    }
}

/* And the control: what persists. */
static void test_no_file_where_nothing_persists(void **state)
{
    (void)state;
    enroll(A);
    assert_int_equal(acquire(A, 1), 0);
    assert_int_equal(access(beside, F_OK), -1);
    assert_int_equal(persist(A, true), 0);
    assert_int_equal(access(beside, F_OK), 0);
}

static void test_each_change_is_on_disk(void **state)
{
    (void)state;
    enroll(A);
    assert_int_equal(persist(A, true), 0);
    lose_power();
    assert_int_equal(reservation()->count, 1);
    enroll(B);
    lose_power();
    assert_int_equal(reservation()->count, 2);
    assert_int_equal(acquire(B, 4), 0);
    lose_power();
    assert_int_equal(reservation()->type, 4);
    assert_int_equal(preempt(A, 2, B), 0);
    lose_power();
    assert_int_equal(reservation()->count, 1);
    assert_int_equal(reservation()->type, 2);
    assert_int_equal(reserve(A, RELEASE, 2 << 8, KEY(A), 0), 0);
    lose_power();
    assert_int_equal(reservation()->type, 0);
    assert_int_equal(reserve(A, RELEASE, CLEAR, KEY(A), 0), 0);
    lose_power();
    assert_int_equal(reservation()->count, 0);
}

static void test_attachments_persist(void **state)
{
    (void)state;
    assert_int_equal(attach(A, false, 2, 2), 0);
    lose_power();
    assert_true(may_write(A));
    assert_int_equal(io_of(B, 0x02), INVALID);
    assert_int_equal(attach(A, true, 2, 1), 0);
    lose_power();
    assert_true(may_write(B));
    assert_int_equal(io_of(C, 0x02), INVALID);
    for (unsigned i = 0; i < HOSTS; i++)
        nvme_kind.reset(d[i]->r.dev);
    assert_int_equal(end_by(A, nvme_kind.wipe), DEVICE_WIPED);
    lose_power();
    assert_true(may_write(C));
}

/* The layout's word on them is for a controller that is alone: two files could contradict. */
static void test_a_drive_that_was_alone(void **state)
{
    driver *one;
    (void)state;
    close_all();
    drv_subsystem = NULL;
    drv_controller = 0;
    one = drv_open(disk);
    drv_boot(one, 0);
    dxpu_put_le32(one->r.mem + MEM_DATA, 1u << 16 | 1);
    assert_int_equal(admin(one, 0x15, 1, 1, 0), 0);
    assert_false(model(one)->ns[0].is.attached); /* the control */
    drv_close(one);
    open_all(disk, 0);
    assert_true(may_write(A) && may_write(B));
    assert_int_equal(attach(A, false, 2, 1), 0);
    lose_power();
    assert_true(may_write(A));
    assert_false(may_write(B));
}

static void test_a_host_without_an_identifier_does_not_persist(void **state)
{
    (void)state;
    assert_int_equal(identify_host(A, 0, false), 0);
    enroll(A);
    enroll(B);
    assert_int_equal(persist(B, true), 0);
    assert_int_equal(acquire(A, 1), 0);
    lose_power();
    assert_int_equal(reservation()->count, 1);
    assert_int_equal(reservation()->type, 0);
}

static void test_a_file_that_cannot_be_written(void **state)
{
    (void)state;
    enroll(A);
    assert_int_equal(persist(A, true), 0);
    assert_int_equal(unlink(beside) + mkdir(beside, 0700), 0);
    assert_int_equal(acquire(A, 1), NVME_INTERNAL_ERROR);
    assert_int_equal(rmdir(beside), 0);
    assert_int_equal(acquire(A, 1), 0); /* the same again */
    lose_power();
    assert_int_equal(reservation()->type, 1);
}

/* What the file says would be the next tenant's after a restart. */
static void test_s249_nothing_is_wiped_whose_file_cannot_be_written(void **state)
{
    (void)state;
    enroll(A);
    assert_int_equal(acquire(A, 2), 0);
    assert_int_equal(persist(A, true), 0);
    assert_int_equal(rename(beside, aside) + mkdir(beside, 0700), 0);
    nvme_kind.reset(d[A]->r.dev);
    assert_int_equal(end_by(A, nvme_kind.leave), DEVICE_UNWIPED);
    for (unsigned i = B; i < HOSTS; i++)
        nvme_kind.reset(d[i]->r.dev);
    assert_int_equal(end_by(B, nvme_kind.wipe), DEVICE_UNWIPED);
    assert_int_equal(end_by(A, nvme_kind.leave), DEVICE_UNWIPED); /* not as if it were */
    assert_int_equal(rmdir(beside) + rename(aside, beside), 0);
    assert_int_equal(end_by(A, nvme_kind.leave), DEVICE_WIPED);
    lose_power();
    assert_int_equal(reservation()->count, 0);
    enroll(A);
    assert_int_equal(persist(A, true), 0);
    for (unsigned i = 0; i < HOSTS; i++)
        nvme_kind.reset(d[i]->r.dev);
    assert_int_equal(end_by(B, nvme_kind.wipe), DEVICE_WIPED); /* the control */
    lose_power();
    assert_int_equal(reservation()->count, 0);
}

/* Another tenant changes what is kept, repeatedly. */
static void test_s249_no_other_host_holds_up_the_end_of_a_lease(void **state)
{
    sqe s = command(REGISTER, 1);
    result res;
    (void)state;
    enroll(A);
    enroll(B);
    assert_int_equal(persist(B, true), 0);
    reopen_slow(C, disk, 0);
    nvme_kind.reset(d[C]->r.dev);
    enroll(A);
    model(d[A])->jobs = slow; /* of the file, too */
    model(d[B])->jobs = slow;
    nvme_kind.reset(d[A]->r.dev);
    assert_int_equal(nvme_kind.leave(d[A]->r.dev, true), DEVICE_WIPING);
    assert_non_null(under_way);
    s.dw[6] = MEM_LOW + MEM_KEYS;
    s.dw[10] = REPLACE | IGNORE;
    dxpu_put_le64(d[B]->r.mem + MEM_KEYS + 8, 77);
    (void)send(B, 1, &s);
    slow_settle(NULL);
    assert_int_equal(nvme_kind.leave(d[A]->r.dev, false), DEVICE_WIPED);
    slow_settle(NULL);
    nvme_kind.tick(d[B]->r.dev, 1000);
    rc_run(&d[B]->r);
    slow_settle(NULL);
    nvme_kind.tick(d[B]->r.dev, 1000);
    rc_run(&d[B]->r);
    assert_true(drv_reap(d[B], 1, &res)); /* the control: it, too, is over */
    assert_int_equal(res.status, 0);
    drv_consumed(d[B], 1);
}

/* The slot was left out of the subsystem meanwhile. */
static void test_s249_a_wipe_of_a_drive_alone_takes_reservations_with_it(void **state)
{
    driver *one;
    (void)state;
    enroll(A);
    assert_int_equal(acquire(A, 2), 0);
    assert_int_equal(persist(A, true), 0);
    close_all();
    drv_subsystem = NULL;
    drv_controller = 0;
    one = d[A] = drv_open(disk);
    assert_int_equal(access(beside, F_OK), 0); /* the lease may go on */
    assert_int_equal(rename(beside, aside) + mkdir(beside, 0700), 0);
    assert_int_equal(end_by(A, nvme_kind.wipe), DEVICE_UNWIPED);
    assert_int_equal(rmdir(beside) + rename(aside, beside), 0);
    for (unsigned i = 0; i < 2; i++) {
        directory_syncs_fail = 1;
        assert_int_equal(end_by(A, nvme_kind.wipe), DEVICE_UNWIPED);
    }
    assert_int_equal(end_by(A, nvme_kind.wipe), DEVICE_WIPED);
    assert_int_equal(access(beside, F_OK), -1);
    drv_close(one);
    open_all(disk, 0);
    assert_int_equal(reservation()->count, 0);
    assert_true(may_write(B));
}

/* What is beside a new file was another one's. */
static void test_s249_a_new_drive_alone_has_no_reservations_to_come(void **state)
{
    FILE *f;
    (void)state;
    close_all();
    assert_int_equal(truncate(disk, 0), 0);
    f = fopen(beside, "w");
    assert_true(f && !fclose(f));
    drv_subsystem = NULL;
    drv_controller = 0;
    drv_close(drv_open(disk));
    assert_int_equal(access(beside, F_OK), -1);
    open_all(disk, 0);
}

static void test_a_damaged_file_is_refused(void **state)
{
    device_settings set = { .file = disk, .subsystem = "s", .mps_bytes = 512, .controller = 9 };
    const device_port port = { .emit = NULL };
    static const char *const bad[] = { "", "dxpu nvme reservations 1\n",
                                       "dxpu nvme reservations 1\n"
                                       "1 0 1 0 0\ncrc32 00000000\n" };
    (void)state;
    close_all();
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *f = fopen(beside, "w");
        assert_non_null(f);
        assert_true(fputs(bad[i], f) >= 0 && !fclose(f));
        assert_null(nvme_kind.create(&set, &port));
    }
    assert_int_equal(unlink(beside), 0);
    open_all(disk, 0);
}

/* ==== 12  Leases ============================================================================== */

static void test_s249_a_lease_ends_and_others_continue(void **state)
{
    (void)state;
    enroll(A);
    enroll(B);
    memset(d[B]->r.mem + MEM_DATA, 0, 512);
    model(d[A])->ns[0].store->bytes[9] = 0x77;
    assert_int_equal(acquire(A, 2), 0);
    nvme_kind.reset(d[A]->r.dev);
    assert_int_equal(nvme_kind.leave(d[A]->r.dev, true), DEVICE_WIPED);
    assert_int_equal(model(d[A])->ns[0].store->bytes[9], 0x77); /* others use them */
    assert_int_equal(reservation()->count, 1);                  /* what was the tenant's went */
    assert_true(may_write(B) && may_write(C));
    model(d[A])->ns[0].store->bytes[9] = 0x77;
    nvme_kind.reset(d[B]->r.dev);
    nvme_kind.reset(d[C]->r.dev);
    model(d[A])->health.broken = model(d[A])->health.lost = true;
    model(d[A])->layout.fits = false;
    assert_int_equal(end_by(C, nvme_kind.wipe), DEVICE_WIPED);
    assert_true(nvme_kind.fits(d[A]->r.dev)); /* one repair is that of all slots */
    assert_false(model(d[A])->health.broken || model(d[A])->health.lost);
    assert_int_equal(model(d[A])->ns[0].store->bytes[9], 0);
    assert_int_equal(reservation()->count, 0);
    assert_int_equal(reservation()->generation, 0);
}

/* Then a registration stays with the controller that it came by, and goes with its next lease. */
static void test_s249_a_host_of_a_controller_without_room(void **state)
{
    (void)state;
    enroll(A);
    assert_int_equal(acquire(A, 1), 0);
    for (unsigned i = 0; i < NVME_REGISTRANTS_EACH; i++) {
        assert_int_equal(identify_host(B, 0x1000 + i, false), 0);
        assert_int_equal(reserve(B, REGISTER, 0, 0, 1), 0);
    }
    assert_int_equal(identify_host(B, 0xa0, false), 0); /* A's */
    nvme_kind.reset(d[A]->r.dev);
    assert_int_equal(end_by(A, nvme_kind.leave), DEVICE_WIPED);
    assert_int_equal(reservation()->count, NVME_REGISTRANTS_EACH + 1);
    assert_true(may_write(B) && !may_write(C));
    nvme_kind.reset(d[B]->r.dev);
    assert_int_equal(end_by(B, nvme_kind.leave), DEVICE_WIPED);
    assert_int_equal(reservation()->count, 1);
    assert_int_equal(end_by(A, nvme_kind.leave), DEVICE_WIPED);
    assert_int_equal(reservation()->count, 0);
    assert_true(may_write(C));
}

/* Its registration is that of each of its leases: it ends with the last of them alone. */
static void test_s249_a_host_has_several_leases(void **state)
{
    (void)state;
    for (unsigned last = 0; last < 2; last++) {
        assert_int_equal(identify_host(A, 0xa0, false), 0);
        assert_int_equal(identify_host(B, 0xa0, false), 0);
        enroll(A);
        assert_int_equal(acquire(A, 1), 0);
        nvme_kind.reset(d[A]->r.dev);
        assert_int_equal(end_by(A, nvme_kind.leave), DEVICE_WIPED);
        assert_int_equal(reservation()->count, 1);
        assert_false(may_write(C));
        nvme_kind.reset(d[B]->r.dev); /* it boots */
        if (last == 0)                /* the lease of whoever has the other controller now */
            assert_int_equal(end_by(A, nvme_kind.leave), DEVICE_WIPED);
        assert_int_equal(reservation()->count, 1);
        assert_int_equal(end_by(B, nvme_kind.leave), DEVICE_WIPED);
        assert_int_equal(reservation()->count, 0);
        assert_true(may_write(C));
        for (unsigned i = A; i <= B; i++)
            drv_boot(d[i], 1);
    }
}

static void test_s249_the_erasure_waits_for_all_controllers(void **state)
{
    sqe s = command(0x01, 1);
    (void)state;
    reopen_slow(A, NULL, 2);
    (void)send(A, 1, &s);
    assert_non_null(under_way);
    nvme_kind.reset(d[A]->r.dev);
    nvme_kind.reset(d[B]->r.dev);
    assert_int_equal(nvme_kind.wipe(d[B]->r.dev, true), DEVICE_WIPING);
    assert_int_equal(nvme_kind.wipe(d[B]->r.dev, false), DEVICE_WIPING);
    assert_true(model(d[B])->wipe.begins); /* an old write would come after it */
    slow_settle(NULL);
    for (int how = DEVICE_WIPING; how == DEVICE_WIPING;)
        how = nvme_kind.wipe(d[B]->r.dev, false);
    assert_false(model(d[B])->wipe.begins);
}

static void test_wipes_of_two_slots_follow_one_another(void **state)
{
    int how = DEVICE_WIPING;
    (void)state;
    for (unsigned i = 0; i < HOSTS; i++)
        nvme_kind.reset(d[i]->r.dev);
    reopen_slow(A, NULL, 2);
    nvme_kind.reset(d[A]->r.dev);
    assert_int_equal(nvme_kind.wipe(d[A]->r.dev, true), DEVICE_WIPING);
    assert_non_null(under_way);
    for (int first = 1; how == DEVICE_WIPING; first = 0) {
        assert_int_equal(nvme_kind.wipe(d[B]->r.dev, first), DEVICE_WIPING);
        assert_true(model(d[B])->wipe.begins);
        slow_settle(NULL);
        how = nvme_kind.wipe(d[A]->r.dev, false);
    }
    assert_int_equal(how, DEVICE_WIPED);
    for (how = DEVICE_WIPING; how == DEVICE_WIPING;)
        how = nvme_kind.wipe(d[B]->r.dev, false);
    assert_int_equal(how, DEVICE_WIPED); /* its own after it */
}

/* What controllers say of one drive is the same: a namespace with blocks of 512 bytes for one host
   and of 4096 for another would be damaged by both. */
static void test_one_drive(void **state)
{
    const device_settings same = { .subsystem = "s",
                                   .mps_bytes = 512,
                                   .identity = 0x20001,
                                   .memory_bytes = STORE_BYTES,
                                   .namespaces = 2,
                                   .controller = 4 };
    device_settings set[7];
    const device_port port = { .emit = NULL };
    void *one;
    (void)state;
    for (unsigned i = 0; i < 7; i++)
        set[i] = same;
    set[0].file = "/tmp/dxpu_other";
    set[1].controller = 2; /* there is a second one */
    set[2].block_bytes = 4096;
    set[3].memory_bytes *= 2;
    set[4].namespaces = 3;
    set[5].identity++;
    set[6].serial = "another";
    for (unsigned i = 0; i < 7; i++)
        assert_null(nvme_kind.create(&set[i], &port));
    one = nvme_kind.create(&same, &port); /* the control */
    assert_non_null(one);
    nvme_kind.destroy(one);
}

/* ==== 13  Random ============================================================================== */

/* Whatever hosts ask for: each answer is as a small model of reservations says. */
static void test_random_commands_keep_the_rules(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (unsigned n = 0; n < 20000; n++) {
        const nvme_reservation *r = reservation();
        unsigned host, holders = 0, registered = 0;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        host = (unsigned)(seed >> 33) % HOSTS;
        (void)reserve(host, (uint8_t[]){ REGISTER, ACQUIRE, RELEASE }[(seed >> 40) % 3],
                      (uint32_t)(seed >> 43) & 0x70f, KEY((seed >> 50) % HOSTS),
                      KEY((seed >> 53) % HOSTS));
        assert_true(r->count <= HOSTS && r->type <= 6);
        assert_true(!r->type || r->count);
        assert_true(!r->type || r->type >= 5 || r->holder < r->count);
        for (unsigned i = 0; i < HOSTS; i++) {
            bool reads = io_of(i, 0x02) == 0, writes = may_write(i), is = false;
            for (unsigned k = 0; k < r->count; k++)
                is |= r->of[k].host.id[0] == 0xa0 + i;
            registered += is;
            holders += writes;
            assert_true(reads || !writes);
            assert_true(r->type || (reads && writes));
            assert_true(!(is && r->type >= 3) || writes);
            assert_true(r->type != 2 || reads == writes);
            assert_true(is || !r->type || !writes);
        }
        assert_int_equal(registered, r->count);
        assert_true((r->type != 1 && r->type != 2) || holders == 1);
    }
}

int main(void)
{
#define CASE(name)      cmocka_unit_test_setup_teardown(name, setup, teardown)
#define WITH_DISK(name) cmocka_unit_test_setup_teardown(name, setup_disk, teardown_disk)
    const struct CMUnitTest tests[] = {
        CASE(test_one_subsystem_of_three_controllers),
        cmocka_unit_test(test_alone_it_has_no_reservations),
        CASE(test_they_see_each_others_data),
        CASE(test_attachment_is_each_controllers),
        CASE(test_what_each_type_allows),
        CASE(test_attachment_is_as_a_write),
        CASE(test_a_flush_of_all_conflicts_with_one),
        CASE(test_registering),
        CASE(test_a_host_has_several_controllers),
        CASE(test_one_controller_does_not_fill_the_table),
        CASE(test_acquiring),
        CASE(test_preempting_the_holder),
        CASE(test_preempting_registrants),
        CASE(test_preempt_and_abort_waits),
        CASE(test_preempt_and_abort_after_a_crash),
        CASE(test_preempt_does_not_wait),
        CASE(test_what_was_preempted_is_waited_for_whatever_its_host_does),
        CASE(test_releasing),
        CASE(test_report),
        CASE(test_report_waits_for_a_buffer),
        CASE(test_identifiers_of_128_bits),
        CASE(test_hosts_without_an_identifier),
        CASE(test_notices),
        CASE(test_what_gives_another_controller_work_wakes_it),
        CASE(test_notices_wait_and_can_be_masked),
        CASE(test_a_reset_is_one_controllers),
        WITH_DISK(test_persist_through_power_loss),
        WITH_DISK(test_no_file_where_nothing_persists),
        WITH_DISK(test_each_change_is_on_disk),
        WITH_DISK(test_attachments_persist),
        WITH_DISK(test_a_drive_that_was_alone),
        WITH_DISK(test_a_host_without_an_identifier_does_not_persist),
        WITH_DISK(test_a_file_that_cannot_be_written),
        WITH_DISK(test_s249_nothing_is_wiped_whose_file_cannot_be_written),
        WITH_DISK(test_s249_no_other_host_holds_up_the_end_of_a_lease),
        WITH_DISK(test_s249_a_wipe_of_a_drive_alone_takes_reservations_with_it),
        WITH_DISK(test_s249_a_new_drive_alone_has_no_reservations_to_come),
        WITH_DISK(test_a_damaged_file_is_refused),
        CASE(test_s249_a_lease_ends_and_others_continue),
        CASE(test_s249_a_host_has_several_leases),
        CASE(test_s249_a_host_of_a_controller_without_room),
        CASE(test_s249_the_erasure_waits_for_all_controllers),
        CASE(test_wipes_of_two_slots_follow_one_another),
        CASE(test_one_drive),
        CASE(test_random_commands_keep_the_rules),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
