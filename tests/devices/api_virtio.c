/* api_virtio.c - the virtio transport and block device under a driver that knows only the standard
   SPDX-License-Identifier: MIT

   Numbers are those of Virtual I/O Device 1.2, not of the model's headers.

   CONTENTS   1 Driver   2 Capabilities and registers   3 Requests   4 Rings   5 Hostile rings
              6 Resets   7 The medium */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "virtio_blk.h"

#include "virtio_driver.h"

/* ==== 1  Driver =============================================================================== */

enum { STORE_BYTES = 4 << 20, QUEUES = 4 };

enum { IN = 0, OUT = 1, FLUSH = 4, GET_ID = 8, DISCARD = 11, WRITE_ZEROES = 13 };

#define F_FLUSH (1ull << 9)
#define F_USUAL (F_FLUSH | F_VERSION_1 | F_PLATFORM)

static const jobs *drv_jobs; /* of the next device; NULL: its own */

static bool drv_read_only;

static driver *drv_open(const char *file)
{
    device_settings s = { .memory_bytes = STORE_BYTES, .mps_bytes = 256, .identity = 0x77 };
    s.file = file;
    s.file_bytes = file ? STORE_BYTES : 0;
    s.serial = "disk-7";
    s.jobs = drv_jobs;
    s.read_only = drv_read_only;
    return drv_create(&virtio_blk_kind, &s, QUEUES);
}

static driver *drv_up(uint64_t features)
{
    driver *d = drv_open(NULL);
    drv_start(d, features, 64);
    return d;
}

static uint32_t header_at(unsigned q, unsigned head)
{
    return AT_HEADERS + q * 0x2000u + head * 64u;
}

static uint8_t *header_of(driver *d, unsigned q, unsigned head)
{
    return d->r.mem + header_at(q, head);
}

static void put_header(driver *d, unsigned q, unsigned head, uint32_t type, uint64_t sector)
{
    uint8_t *h = header_of(d, q, head);
    dxpu_put_le32(h, type);
    dxpu_put_le32(h + 4, 0);
    dxpu_put_le64(h + 8, sector);
    h[32] = 0xff; /* the status */
}

/* The chain of a request from descriptor `first` on, its data in `pieces` at `at`, its header at
   `h`. */
static void put_chain(uint8_t *table, unsigned first, uint32_t h, uint32_t type, uint64_t at,
                      uint32_t bytes, unsigned pieces)
{
    unsigned i = first, kind = type == IN || type == GET_ID ? WRITE : 0;
    put_desc(table, i, MEM_LOW + h, 16, NEXT, i + 1);
    for (unsigned p = 0; p < pieces; p++) {
        uint32_t part = bytes / pieces;
        i++;
        put_desc(table, i, at + (uint64_t)part * p, p + 1 == pieces ? bytes - part * p : part,
                 NEXT | kind, i + 1);
    }
    put_desc(table, i + 1, MEM_LOW + h + 32, 1, WRITE, 0);
}

/* Make a request available without a notification. */
static void submit(driver *d, unsigned q, uint16_t head, uint32_t type, uint64_t sector,
                   uint64_t at, uint32_t bytes, unsigned pieces)
{
    put_header(d, q, head, type, sector);
    put_chain(ring_mem(d, q, 0), head, header_at(q, head), type, at, bytes, pieces);
    avail_put(d, q, head);
}

/* One request by itself; its status. */
static uint8_t request(driver *d, unsigned q, uint32_t type, uint64_t sector, uint64_t at,
                       uint32_t bytes, unsigned pieces)
{
    uint32_t head = 99, len;
    if ((d->features & F_EVENT_IDX) && !d->quiet)
        dxpu_put_le16(ring_mem(d, q, AT_AVAIL) + 4 + 2u * d->q[q].size, d->q[q].seen);
    submit(d, q, 0, type, sector, at, bytes, pieces);
    notify(d, q);
    rc_run(&d->r);
    assert_true(reap(d, q, &head, &len));
    assert_int_equal(head, 0);
    return header_of(d, q, 0)[32];
}

/* ==== 2  Capabilities and registers =========================================================== */

/* Those that a driver waits for: after a reset of the device, or of a queue, they read 0, and so
   they do when the device is gone. */
static void test_v49_values_of_what_is_gone(void **state)
{
    static const uint8_t registers[] = { STATUS, QUEUE_ENABLE, QUEUE_RESET };
    driver *d = drv_up(F_VERSION_1);
    device_value v[DEVICE_VALUES_MAX];
    (void)state;
    assert_int_equal(virtio_blk_kind.values(d->r.dev, v), 3);
    set_common(d, QUEUE_SELECT, 0, 2);
    assert_int_not_equal(common(d, STATUS, 1), 0); /* control */
    assert_int_not_equal(common(d, QUEUE_ENABLE, 2), 0);
    set_common(d, STATUS, 0, 1);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(v[i].function == 0 && v[i].bar == 0 && v[i].bytes == (i ? 2 : 1));
        assert_int_equal(v[i].offset, d->common + registers[i]);
        assert_int_equal(common(d, registers[i], v[i].bytes), 0);
        assert_int_equal(dxpu_get_le32(v[i].value), 0);
    }
    drv_close(d);
}

static void test_capabilities(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    unsigned found = 0, others = 0;
    (void)state;
    assert_int_equal(cfg_read(r, 0x00), 0x10421af4);
    assert_true((cfg_read(r, 0x08) & 0xff) >= 1);
    for (unsigned at = cfg_read(r, 0x34) & 0xff; at; at = cfg_read(r, at) >> 8 & 0xff) {
        uint32_t head = cfg_read(r, at), type = head >> 24, bytes = cfg_read(r, at + 12);
        if ((head & 0xff) != 9) {
            others++;
            continue;
        }
        assert_true(type >= 1 && type <= 5 && !(found & 1u << type));
        found |= 1u << type;
        assert_int_equal(head >> 16 & 0xff, type == 2 || type == 5 ? 20 : 16);
        if (type != 5) {
            assert_int_equal(cfg_read(r, at + 4) & 0xff, 0); /* BAR */
            assert_true(cfg_read(r, at + 8) + bytes <= 0x8000);
            assert_int_equal(cfg_read(r, at + 8) % 4, 0);
        }
        assert_true(type != 1 || bytes >= 0x40);
        assert_true(type != 2 || bytes >= cfg_read(r, at + 16) * (QUEUES - 1) + 4);
    }
    assert_int_equal(found, 0x3e);
    assert_int_equal(others, 3); /* PM, MSI-X, PCI Express */
    drv_close(d);
}

static void test_features_are_negotiated(void **state)
{
    driver *d = drv_open(NULL);
    uint64_t f = offered(d);
    (void)state;
    assert_true((f & (F_USUAL | F_INDIRECT | F_EVENT_IDX | F_RESET)) ==
                (F_USUAL | F_INDIRECT | F_EVENT_IDX | F_RESET));
    assert_false(f & 1ull << 34); /* packed rings */
    set_common(d, DEVICE_SELECT, 2, 4);
    assert_int_equal(common(d, DEVICE_FEATURE, 4), 0);
    assert_true(negotiate(d, f));
    assert_false(negotiate(d, f & ~F_VERSION_1));
    assert_false(negotiate(d, f | 1ull << 34));
    set_common(d, STATUS, ACKNOWLEDGE | DRIVER | DRIVER_OK, 1); /* without FEATURES_OK */
    assert_false(status(d) & DRIVER_OK);
    assert_true(negotiate(d, F_VERSION_1));
    set_common(d, DRIVER_FEATURE, 0, 4); /* too late */
    assert_int_equal(common(d, DRIVER_FEATURE, 4), 1);
    set_common(d, STATUS, ACKNOWLEDGE, 1); /* bits are not cleared but by a reset */
    assert_int_equal(status(d), ACKNOWLEDGE | DRIVER | FEATURES_OK);
    drv_close(d);
}

static void test_registers(void **state)
{
    driver *d = drv_open(NULL);
    (void)state;
    assert_int_equal(common(d, NUM_QUEUES, 2), QUEUES);
    assert_int_equal(common(d, CONFIG_VECTOR, 2), 0xffff);
    set_common(d, CONFIG_VECTOR, QUEUES + 1, 2); /* not a vector */
    assert_int_equal(common(d, CONFIG_VECTOR, 2), 0xffff);
    set_common(d, CONFIG_VECTOR, QUEUES, 2);
    assert_int_equal(common(d, CONFIG_VECTOR, 2), QUEUES);
    set_common(d, QUEUE_SELECT, QUEUES, 2); /* no such queue */
    assert_int_equal(common(d, QUEUE_SIZE, 2), 0);
    set_common(d, QUEUE_SELECT, 3, 2);
    assert_int_equal(common(d, QUEUE_SIZE, 2), 128);
    assert_int_equal(common(d, QUEUE_NOTIFY_OFF, 2), 3);
    set_common(d, QUEUE_DESC, 0x1122334455667780u, 8);
    assert_int_equal(common(d, QUEUE_DESC + 4, 4), 0x11223344);
    set_common(d, QUEUE_DESC, 0xabcd0000u, 4);
    assert_int_equal(common(d, QUEUE_DESC + 4, 4), 0x11223344);
    assert_int_equal(common(d, QUEUE_DESC, 4), 0xabcd0000u);
    assert_int_equal(get(d, d->config, 4), STORE_BYTES / 512);
    assert_int_equal(get(d, d->config + 34, 2), QUEUES);
    assert_int_equal(get(d, d->config + 0x100, 4), 0); /* beyond it */
    drv_close(d);
}

/* The window in the configuration space leads to the same registers (4.1.4.9). */
static void test_configuration_access(void **state)
{
    driver *d = drv_open(NULL);
    rc *r = &d->r;
    unsigned at = cfg_read(r, 0x34) & 0xff;
    (void)state;
    while ((cfg_read(r, at) & 0xff) != 9 || cfg_read(r, at) >> 24 != 5)
        at = cfg_read(r, at) >> 8 & 0xff;
    cfg_write(r, at + 8, d->common + NUM_QUEUES);
    cfg_write(r, at + 12, 2);
    assert_int_equal(cfg_read(r, at + 16), QUEUES);
    cfg_write(r, at + 8, d->common + STATUS);
    cfg_write(r, at + 12, 1);
    cfg_write(r, at + 16, ACKNOWLEDGE);
    assert_int_equal(status(d), ACKNOWLEDGE);
    assert_int_equal(cfg_read(r, at + 16), ACKNOWLEDGE);
    cfg_write(r, at + 12, 3); /* not a length */
    cfg_write(r, at + 16, DRIVER);
    cfg_write(r, at + 12, 4);
    cfg_write(r, at + 8, 0x7ffffffc); /* not in the BAR */
    cfg_write(r, at + 16, DRIVER);
    assert_int_equal(status(d), ACKNOWLEDGE);
    cfg_write(r, at + 8, d->common + STATUS);
    cfg_write(r, at + 12, 1);
    cfg_write(r, at + 16, DRIVER);
    assert_int_equal(status(d), ACKNOWLEDGE | DRIVER);
    set_common(d, STATUS, 0, 1);
    cfg_write_be(r, at + 16, DRIVER, 0); /* no byte of it */
    assert_int_equal(status(d), 0);
    drv_close(d);
}

/* ==== 3  Requests ============================================================================= */

static const uint64_t feature_sets[] = { F_USUAL, F_USUAL | F_EVENT_IDX, F_USUAL | F_DATA,
                                         F_USUAL | F_EVENT_IDX | F_DATA | F_INDIRECT, F_VERSION_1 };
enum { FEATURE_SETS = sizeof feature_sets / sizeof feature_sets[0] };

static void test_write_and_read(void **state)
{
    static const uint32_t sizes[] = { 512, 4096, 65536, 512 * 1025 };
    (void)state;
    for (unsigned s = 0; s < FEATURE_SETS; s++) {
        driver *d = drv_up(feature_sets[s]);
        uint8_t *data = d->r.mem + AT_DATA, *back = data + (1 << 20);
        for (unsigned i = 0; i < 4; i++) {
            unsigned q = i % QUEUES, pieces = 1 + i * 7;
            fill(data, sizes[i], s + i);
            assert_int_equal(request(d, q, OUT, 3 + i, MEM_LOW + AT_DATA, sizes[i], pieces), 0);
            memset(back, 0, sizes[i]);
            assert_int_equal(
                request(d, q, IN, 3 + i, MEM_HIGH + AT_DATA + (1 << 20), sizes[i], 29 - pieces), 0);
            assert_memory_equal(data, back, sizes[i]);
            assert_int_equal(d->r.msi_count[q + 1], 2);
        }
        assert_int_equal(request(d, 0, FLUSH, 0, 0, 0, 0), 0);
        assert_int_equal(status(d), 15);
        drv_close(d);
    }
}

static void test_lengths_and_serial(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint32_t head, len;
    (void)state;
    assert_int_equal(request(d, 0, GET_ID, 0, MEM_LOW + AT_DATA, 20, 1), 0);
    assert_memory_equal(d->r.mem + AT_DATA, "disk-7\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
    submit(d, 0, 4, IN, 0, MEM_LOW + AT_DATA, 1024, 2);
    submit(d, 0, 8, OUT, 0, MEM_LOW + AT_DATA, 1024, 2);
    notify(d, 0);
    rc_run(&d->r);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(reap(d, 0, &head, &len));
        assert_int_equal(len, head == 4 ? 1025 : 1); /* with the status */
    }
    drv_close(d);
}

/* What a read request gives beside its header takes no room from what is read. */
static void test_read_with_long_header(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t *table = ring_mem(d, 0, 0), *data = d->r.mem + AT_DATA;
    (void)state;
    fill(data, 512 << 10, 3);
    assert_int_equal(request(d, 0, OUT, 0, MEM_LOW + AT_DATA, 512 << 10, 1), 0);
    for (unsigned extra = 256; extra <= 4096; extra *= 2) {
        uint32_t head, len;
        memset(data, 0, 512 << 10);
        put_header(d, 0, 0, IN, 0);
        put_desc(table, 0, MEM_LOW + header_at(0, 0), 16 + extra, NEXT, 1);
        put_desc(table, 1, MEM_LOW + AT_DATA, 512 << 10, NEXT | WRITE, 2);
        put_desc(table, 2, MEM_LOW + header_at(0, 0) + 32, 1, WRITE, 0);
        avail_put(d, 0, 0);
        notify(d, 0);
        rc_run(&d->r);
        d->q[0].seen = (uint16_t)(d->q[0].made - 1);
        assert_true(reap(d, 0, &head, &len));
        assert_int_equal(header_of(d, 0, 0)[32], 0);
        assert_int_equal(len, (512 << 10) + 1);
        for (uint32_t i = 0; i < 512 << 10; i += 4093)
            assert_int_equal(data[i], (uint8_t)(i * 7 + (i >> 8) + 3));
    }
    drv_close(d);
}

static void test_refusals(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint64_t last = STORE_BYTES / 512, at = MEM_LOW + AT_DATA;
    (void)state;
    assert_int_equal(request(d, 0, IN, last - 1, at, 512, 1), 0);
    assert_int_equal(request(d, 0, IN, last, at, 512, 1), 1);
    assert_int_equal(request(d, 0, OUT, last - 1, at, 1024, 1), 1);
    assert_int_equal(request(d, 0, OUT, UINT64_MAX, at, 512, 1), 1);
    assert_int_equal(request(d, 0, OUT, 0, at, 511, 1), 1);
    assert_int_equal(request(d, 0, IN, 0, at, 513, 1), 1);
    assert_int_equal(request(d, 0, 77, 0, at, 512, 1), 2);
    assert_int_equal(status(d), 15); /* none of it breaks the device */
    drv_close(d);
}

static uint8_t segments(driver *d, uint32_t type, unsigned count, uint64_t sector, uint32_t sectors,
                        uint32_t flags)
{
    uint8_t *s = d->r.mem + AT_DATA;
    for (unsigned i = 0; i < count; i++, s += 16, sector += sectors) {
        dxpu_put_le64(s, sector);
        dxpu_put_le32(s + 8, sectors);
        dxpu_put_le32(s + 12, flags);
    }
    return request(d, 0, type, 0, MEM_LOW + AT_DATA, count * 16, 1);
}

static void test_discard_and_zeroes(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t *back = d->r.mem + AT_DATA + 0x10000;
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        static const uint32_t types[] = { WRITE_ZEROES, WRITE_ZEROES, DISCARD };
        fill(back, 16384, 1);
        assert_int_equal(request(d, 1, OUT, 0, MEM_LOW + AT_DATA + 0x10000, 16384, 1), 0);
        assert_int_equal(segments(d, types[i], 3, 4, 2, i == 1), 0);
        assert_int_equal(request(d, 1, IN, 0, MEM_LOW + AT_DATA + 0x10000, 16384, 1), 0);
        for (unsigned b = 0; b < 16384; b++)
            assert_int_equal(back[b], b >= 2048 && b < 5120 ? 0 : (uint8_t)(b * 7 + (b >> 8) + 1));
    }
    assert_int_equal(segments(d, DISCARD, 1, 0, 1, 1), 2);      /* a flag of write zeroes */
    assert_int_equal(segments(d, WRITE_ZEROES, 1, 0, 1, 2), 2); /* one that is not known */
    assert_int_equal(segments(d, DISCARD, 17, 0, 1, 0), 1);     /* more than it takes */
    assert_int_equal(segments(d, DISCARD, 2, STORE_BYTES / 512 - 1, 1, 0), 1);
    assert_int_equal(segments(d, DISCARD, 1, UINT64_MAX, 1, 0), 1);
    assert_int_equal(segments(d, WRITE_ZEROES, 0, 0, 1, 0), 1);
    drv_close(d);
}

/* The driver's data cannot be read: the request fails, and the device goes on. */
static void test_data_that_cannot_be_read(void **state)
{
    driver *d = drv_up(F_USUAL);
    (void)state;
    assert_int_equal(request(d, 0, OUT, 0, 0x7000000000u, 4096, 2), 1);
    assert_int_equal(request(d, 0, OUT, 0, MEM_LOW + AT_DATA, 4096, 2), 0);
    assert_int_equal(status(d), 15);
    drv_close(d);
}

/* ==== 4  Rings ================================================================================ */

/* Many at once, in all queues, over the wrap of the ring and of its 16-bit indices. */
static void run_many(uint64_t features, unsigned rounds)
{
    driver *d = drv_up(features);
    uint32_t head = 0, len = 0;
    unsigned i;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned q = 0; q < QUEUES; q++) {
            for (i = 0; i < 8; i++) {
                uint32_t at = AT_DATA + (q * 16 + i) * 1024;
                dxpu_put_le32(d->r.mem + at, round << 8 | q << 4 | i);
                submit(d, q, (uint16_t)(i * 4), round & 1 ? IN : OUT, q * 16 + i, MEM_LOW + at, 512,
                       2);
                if (rnd(&d->r) % 2 || i == 7)
                    notify(d, q);
            }
        }
        rc_run(&d->r);
        for (unsigned q = 0; q < QUEUES; q++) {
            for (i = 0; i < 8; i++) {
                uint32_t at;
                assert_true(reap(d, q, &head, &len));
                assert_int_equal(header_of(d, q, head)[32], 0);
                at = AT_DATA + (q * 16 + head / 4) * 1024;
                assert_int_equal(dxpu_get_le32(d->r.mem + at),
                                 (round & ~1u) << 8 | q << 4 | head / 4);
            }
            assert_false(reap(d, q, &head, &len));
        }
    }
    assert_int_equal(status(d), 15);
    drv_close(d);
}

static void test_many_requests(void **state)
{
    (void)state;
    for (unsigned s = 0; s < FEATURE_SETS; s++)
        run_many(feature_sets[s], 24);
}

/* The indices of a ring wrap at 65,536. */
static void test_index_wraps(void **state)
{
    driver *d = drv_open(NULL);
    uint32_t head, len;
    (void)state;
    drv_start(d, F_USUAL | F_EVENT_IDX, 128);
    for (unsigned i = 0; i < 65536 / 32 + 3; i++) {
        for (unsigned k = 0; k < 32; k++)
            submit(d, 2, (uint16_t)(k * 3), IN, k, MEM_LOW + AT_DATA, 512, 1);
        dxpu_put_le16(ring_mem(d, 2, AT_AVAIL) + 4 + 2 * 128, d->q[2].made - 1u); /* used_event */
        d->r.msi_count[3] = 0;
        notify(d, 2);
        rc_run(&d->r);
        for (unsigned k = 0; k < 32; k++)
            assert_true(reap(d, 2, &head, &len));
        assert_int_equal(d->r.msi_count[3], 1);
        assert_int_equal(dxpu_get_le16(ring_mem(d, 2, AT_USED) + 4 + 8 * 128), d->q[2].made);
    }
    assert_int_equal(status(d), 15);
    drv_close(d);
}

/* Interrupts follow from flags, or from used_event, as they are when the entry is used. */
static void test_interrupts_are_suppressed(void **state)
{
    (void)state;
    for (unsigned event = 0; event < 2; event++) {
        driver *d = drv_up(F_USUAL | (event ? F_EVENT_IDX : 0));
        uint8_t *a = ring_mem(d, 0, AT_AVAIL);
        d->quiet = true;
        dxpu_put_le16(event ? a + 4 + 2 * 64 : a, event ? 5 : 1); /* at the sixth entry; none */
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(request(d, 0, FLUSH, 0, 0, 0, 0), 0);
        assert_int_equal(d->r.msi_count[1], 0);
        dxpu_put_le16(a, 0);
        assert_int_equal(request(d, 0, FLUSH, 0, 0, 0, 0), 0);
        assert_int_equal(d->r.msi_count[1], 1);
        drv_close(d);
    }
}

/* What the device saw last says no, but by now the driver wants one: it comes.  The control: it
   does not want one. */
static void test_interrupt_asked_late(void **state)
{
    (void)state;
    for (unsigned control = 0; control < 2; control++) {
        driver *d = drv_up(F_USUAL);
        uint8_t *flags = ring_mem(d, 0, AT_AVAIL);
        dxpu_put_le16(flags, 1);
        submit(d, 0, 0, IN, 0, MEM_LOW + AT_DATA, 512, 1);
        notify(d, 0);
        rc_look(&d->r);
        for (unsigned trip = 0; trip < 2; trip++) /* all but the header */
            answer_round(d);
        assert_int_equal(used_index(d, 0), 0);
        dxpu_put_le16(flags, control);
        rc_run(&d->r);
        assert_int_equal(used_index(d, 0), 1);
        assert_int_equal(d->r.msi_count[1], !control);
        drv_close(d);
    }
}

static void put_indirect(driver *d, unsigned q, uint16_t head, uint32_t type, uint64_t sector,
                         uint32_t bytes, unsigned pieces)
{
    uint64_t table = MEM_LOW + AT_TABLES + head * 4096u;
    put_header(d, q, head, type, sector);
    put_chain(rc_mem(&d->r, table, 4096), 0, header_at(q, head), type, MEM_LOW + AT_DATA, bytes,
              pieces);
    put_desc(ring_mem(d, q, 0), head, table, (pieces + 2) * 16, INDIRECT, 0);
    avail_put(d, q, head);
}

static void test_indirect(void **state)
{
    driver *d = drv_up(F_USUAL | F_INDIRECT | F_EVENT_IDX);
    uint8_t *data = d->r.mem + AT_DATA;
    uint32_t head, len;
    (void)state;
    for (unsigned pieces = 1; pieces <= 126; pieces += 25) {
        uint16_t at = (uint16_t)(pieces % 64);
        fill(data, 126 * 512, pieces);
        put_indirect(d, 1, at, OUT, 9, 126 * 512, pieces);
        notify(d, 1);
        rc_run(&d->r);
        assert_true(reap(d, 1, &head, &len));
        memset(data, 0, 126 * 512);
        put_indirect(d, 1, at, IN, 9, 126 * 512, pieces);
        notify(d, 1);
        rc_run(&d->r);
        assert_true(reap(d, 1, &head, &len));
        assert_int_equal(head, at);
        assert_int_equal(header_of(d, 1, at)[32], 0);
        for (unsigned i = 0; i < 126 * 512; i++)
            assert_int_equal(data[i], (uint8_t)(i * 7 + (i >> 8) + pieces));
    }
    drv_close(d);
}

/* Dependent round trips until a read's data are there: what is read together is answered together.
   With the index in the notification there is one less. */
static unsigned round_trips(uint64_t features)
{
    driver *d = drv_up(features);
    unsigned trips = 0;
    (void)request(d, 0, IN, 0, MEM_LOW + AT_DATA, 512, 1); /* the window is as wide as needed */
    submit(d, 0, 0, IN, 0, MEM_LOW + AT_DATA, 512, 1);
    notify(d, 0);
    while (used_index(d, 0) == 1) {
        assert_true(d->r.answers_waiting && ++trips < 10);
        answer_round(d);
    }
    drv_close(d);
    return trips;
}

static void test_round_trips(void **state)
{
    (void)state;
    assert_int_equal(round_trips(F_USUAL), 3); /* index, entry and descriptors, header */
    assert_int_equal(round_trips(F_USUAL | F_DATA), 2);
}

/* ==== 5  Hostile rings ======================================================================== */

static void broken(driver *d)
{
    uint32_t head, len;
    rc_run(&d->r);
    assert_true(status(d) & NEEDS_RESET);
    assert_int_equal(d->r.msi_count[0], 1); /* the configuration's interrupt */
    notify(d, 0);
    rc_run(&d->r);
    assert_false(reap(d, 1, &head, &len));
    set_common(d, STATUS, 0, 1);
    assert_int_equal(status(d), 0);
    drv_start(d, F_USUAL, 64);
    assert_int_equal(request(d, 0, FLUSH, 0, 0, 0, 0), 0); /* as good as new */
    drv_close(d);
}

static void test_hostile_chains(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 14; how++) {
        driver *d = drv_up(F_USUAL | (how >= 8 ? F_INDIRECT : 0));
        uint8_t *t = ring_mem(d, 0, 0), *i = d->r.mem + AT_TABLES;
        uint64_t table = MEM_LOW + AT_TABLES;
        submit(d, 0, 0, OUT, 0, MEM_LOW + AT_DATA, 512, 1);
        put_chain(i, 0, header_at(0, 0), OUT, MEM_LOW + AT_DATA, 512, 1);
        if (how == 0) /* a loop */
            put_desc(t, 1, MEM_LOW + AT_DATA, 0, NEXT, 0);
        else if (how == 1) /* a descriptor that is not there */
            put_desc(t, 1, MEM_LOW + AT_DATA, 512, NEXT, 64);
        else if (how == 2) /* to be read after what is to be written */
            put_desc(t, 0, MEM_LOW + AT_DATA, 512, NEXT | WRITE, 1);
        else if (how == 3) /* beyond the end of all addresses */
            put_desc(t, 1, UINT64_MAX - 100, 512, NEXT, 2);
        else if (how == 4) /* no place for a status */
            put_desc(t, 1, MEM_LOW + AT_DATA, 512, 0, 0);
        else if (how == 5) /* half a header */
            put_desc(t, 0, MEM_LOW + AT_HEADERS, 15, NEXT, 2);
        else if (how == 6) /* a head that is not there */
            dxpu_put_le16(ring_mem(d, 0, AT_AVAIL) + 4, 64);
        else if (how == 7) /* not negotiated */
            put_desc(t, 0, table, 48, INDIRECT, 0);
        else if (how == 8)
            put_desc(t, 0, table, 48, INDIRECT | NEXT, 1);
        else if (how == 9)
            put_desc(t, 0, table, 47, INDIRECT, 0);
        else if (how == 10)
            put_desc(t, 0, table, 129 * 16, INDIRECT, 0);
        else if (how == 11)
            put_desc(t, 0, 0x7000000000u, 48, INDIRECT, 0);
        else
            put_desc(t, 0, table, how == 12 ? 48 : 0, INDIRECT, 0);
        if (how == 12) /* a table in a table */
            put_desc(i, 1, table, 48, INDIRECT, 0);
        notify(d, 0);
        broken(d);
    }
}

static void test_index_jumps(void **state)
{
    static const unsigned jumps[] = { 65, 1000, 0x8000, 0xffff };
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        driver *d = drv_up(F_USUAL);
        dxpu_put_le16(ring_mem(d, 0, AT_AVAIL) + 2, jumps[i]);
        notify(d, 0);
        broken(d);
    }
}

/* An index in a notification is believed only where it can be: others are ignored. */
static void test_notified_index(void **state)
{
    driver *d = drv_up(F_USUAL | F_DATA);
    (void)state;
    assert_int_equal(request(d, 0, FLUSH, 0, 0, 0, 0), 0);
    set(d, d->notify, 0xffffu << 16, 4);
    set(d, d->notify, 0x4000u << 16, 4);
    set(d, d->notify, 0, 4);
    rc_run(&d->r);
    assert_int_equal(status(d), 15);
    assert_int_equal(request(d, 0, FLUSH, 0, 0, 0, 0), 0);
    drv_close(d);
}

static void test_bad_queues(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 4; how++) {
        driver *d = drv_open(NULL);
        assert_true(negotiate(d, F_USUAL));
        set_common(d, QUEUE_SELECT, 0, 2);
        set_common(d, QUEUE_SIZE, how == 0 ? 3 : how == 1 ? 0 : how == 2 ? 256 : 64, 2);
        set_common(d, QUEUE_DESC, how == 3 ? UINT64_MAX - 15 : ring_at(0, 0), 8);
        set_common(d, QUEUE_ENABLE, 1, 2);
        assert_true(status(d) & NEEDS_RESET);
        assert_int_equal(common(d, QUEUE_ENABLE, 2), 0);
        drv_close(d);
    }
    driver *d = drv_open(NULL); /* rings where there is no memory */
    assert_true(negotiate(d, F_USUAL));
    set_common(d, CONFIG_VECTOR, 0, 2);
    d->q[1].size = 64;
    set_common(d, QUEUE_DRIVER, 0x7000000000u, 8);
    set_common(d, QUEUE_ENABLE, 1, 2);
    set_common(d, STATUS, 15, 1);
    broken(d);
}

/* The same descriptors repeatedly, faster than they are used: nothing is exhausted. */
static void test_flood(void **state)
{
    driver *d = drv_open(NULL);
    (void)state;
    drv_start(d, F_USUAL, 128);
    for (unsigned q = 0; q < QUEUES; q++) {
        for (unsigned i = 0; i < 128; i++)
            submit(d, q, 0, IN, 0, MEM_LOW + AT_DATA, 1 << 20, 1);
        for (unsigned i = 0; i < 100; i++)
            notify(d, q);
    }
    rc_run(&d->r);
    for (unsigned q = 0; q < QUEUES; q++)
        assert_int_equal(used_index(d, q), 128);
    assert_int_equal(status(d), 15);
    drv_close(d);
}

/* ==== 6  Resets =============================================================================== */

/* After any number of answers a reset, of any kind, leaves nothing behind. */
static void test_reset_in_every_state(void **state)
{
    (void)state;
    for (reset_kind how = DEVICE_RESET; how < RESETS; how++) {
        for (unsigned answers = 0; answers < 12; answers++) {
            driver *d = drv_up(F_USUAL | F_EVENT_IDX | F_RESET);
            rc *r = &d->r;
            submit(d, 0, 0, OUT, 0, MEM_LOW + AT_DATA, 4096, 3);
            submit(d, 0, 8, IN, 0, MEM_LOW + AT_DATA, 4096, 3);
            notify(d, 0);
            rc_look(r);
            for (unsigned i = 0; i < answers && rc_answer_one(r); i++)
                rc_look(r);
            drv_reset(d, how);
            assert_int_equal(status(d), 0);
            set_common(d, QUEUE_SELECT, 0, 2);
            assert_int_equal(common(d, QUEUE_ENABLE, 2), 0);
            assert_int_equal(common(d, QUEUE_DESC, 4), 0);
            r->writes = 0;
            rc_run(r);
            assert_int_equal(r->writes, 0);
            drv_start(d, F_USUAL, 16);
            assert_int_equal(request(d, 0, FLUSH, 0, 0, 0, 0), 0);
            drv_close(d);
        }
    }
}

static void test_queue_reset(void **state)
{
    driver *d = drv_up(F_USUAL | F_RESET);
    (void)state;
    submit(d, 1, 0, OUT, 0, MEM_LOW + AT_DATA, 4096, 3);
    notify(d, 1);
    rc_look(&d->r);
    set_common(d, QUEUE_SELECT, 1, 2);
    set_common(d, QUEUE_RESET, 1, 2);
    assert_int_equal(common(d, QUEUE_RESET, 2), 0);
    assert_int_equal(common(d, QUEUE_ENABLE, 2), 0);
    rc_run(&d->r);
    assert_int_equal(used_index(d, 1), 0);
    assert_int_equal(request(d, 0, FLUSH, 0, 0, 0, 0), 0); /* the others go on */
    make_queue(d, 1, 32);
    assert_int_equal(request(d, 1, FLUSH, 0, 0, 0, 0), 0);
    drv_close(d);
}

/* Nothing is sent while Bus Master Enable is clear, and all of it after. */
static void test_no_bus_mastering(void **state)
{
    driver *d = drv_up(F_USUAL);
    rc *r = &d->r;
    uint32_t head, len;
    (void)state;
    for (unsigned answers = 0; answers < 8; answers++) {
        submit(d, 0, 0, IN, 0, MEM_LOW + AT_DATA, 2048, 1);
        notify(d, 0);
        rc_look(r);
        for (unsigned i = 0; i < answers && rc_answer_one(r); i++)
            rc_look(r);
        cfg_write_be(r, 0x04, 0x0002, 0x3);
        rc_look(r);
        r->writes = r->reads = 0;
        rc_run(r);
        virtio_blk_kind.tick(r->dev, 1000);
        rc_run(r);
        assert_int_equal(r->writes + r->reads, 0);
        cfg_write_be(r, 0x04, 0x0006, 0x3);
        rc_run(r);
        assert_true(reap(d, 0, &head, &len));
    }
    drv_close(d);
}

/* -- Accesses that a test ends when it likes -- */

typedef struct later {
    job *waiting, *over;
} later;

static void later_submit(void *user, job *j)
{
    later *l = user;
    j->next = l->waiting;
    l->waiting = j;
}

static job *later_reap(void *user)
{
    later *l = user;
    job *j = l->over;
    if (j)
        l->over = j->next;
    return j;
}

static bool later_cancel(void *user, job *j)
{
    (void)user;
    (void)j;
    return false; /* it has begun */
}

static void later_settle(void *user)
{
    later *l = user;
    while (l->waiting) {
        job *j = l->waiting;
        l->waiting = j->next;
        j->run(j);
        j->next = l->over;
        l->over = j;
    }
}

/* A write that a reset overtakes ends before any request of the next driver begins. */
static void test_reset_waits_for_the_medium(void **state)
{
    later l = { NULL, NULL };
    jobs slow = { &l, later_submit, later_reap, later_cancel, later_settle };
    driver *d;
    uint8_t *data;
    uint32_t head, len;
    (void)state;
    drv_jobs = &slow;
    d = drv_open(NULL);
    drv_jobs = NULL;
    drv_start(d, F_USUAL, 64);
    data = d->r.mem + AT_DATA;
    fill(data, 512, 1);
    submit(d, 0, 0, OUT, 0, MEM_LOW + AT_DATA, 512, 1);
    notify(d, 0);
    rc_run(&d->r);
    assert_non_null(l.waiting);
    set_common(d, STATUS, 0, 1);
    assert_int_equal(status(d), 0);
    drv_start(d, F_USUAL, 64);
    submit(d, 0, 0, OUT, 0, MEM_LOW + AT_DATA + 512, 512, 1);
    fill(data + 512, 512, 2);
    notify(d, 0);
    rc_run(&d->r);
    assert_non_null(l.waiting);
    assert_null(l.waiting->next); /* the old one alone */
    later_settle(&l);
    virtio_blk_kind.tick(d->r.dev, 1000);
    rc_run(&d->r);
    assert_non_null(l.waiting);
    later_settle(&l);
    virtio_blk_kind.tick(d->r.dev, 2000);
    rc_run(&d->r);
    assert_true(reap(d, 0, &head, &len));
    submit(d, 0, 4, IN, 0, MEM_LOW + AT_DATA + 1024, 512, 1);
    notify(d, 0);
    rc_run(&d->r);
    later_settle(&l);
    virtio_blk_kind.tick(d->r.dev, 3000);
    rc_run(&d->r);
    assert_memory_equal(data + 512, data + 1024, 512);
    submit(d, 0, 8, OUT, 0, MEM_LOW + AT_DATA, 512, 1); /* left to the end of the device */
    notify(d, 0);
    rc_run(&d->r);
    drv_close(d);
}

/* ==== 7  The medium =========================================================================== */

static void test_file_and_wipe(void **state)
{
    char path[] = "/tmp/virtio-blk-XXXXXX";
    int fd = mkstemp(path);
    bool pristine;
    driver *d;
    uint8_t byte = 0;
    (void)state;
    assert_true(fd >= 0);
    d = drv_open(path);
    assert_true(virtio_blk_kind.medium(d->r.dev, &pristine) != 0);
    assert_true(pristine);
    drv_start(d, F_USUAL, 64);
    fill(d->r.mem + AT_DATA, 4096, 1);
    assert_int_equal(request(d, 0, OUT, 8, MEM_LOW + AT_DATA, 4096, 1), 0);
    virtio_blk_kind.reset(d->r.dev);
    drv_close(d);
    d = drv_open(path); /* it outlives the device */
    (void)virtio_blk_kind.medium(d->r.dev, &pristine);
    assert_false(pristine);
    drv_start(d, F_USUAL, 64);
    assert_int_equal(request(d, 0, IN, 8, MEM_LOW + AT_DATA + 8192, 4096, 1), 0);
    fill(d->r.mem + AT_DATA, 4096, 1);
    assert_memory_equal(d->r.mem + AT_DATA, d->r.mem + AT_DATA + 8192, 4096);
    virtio_blk_kind.reset(d->r.dev);
    assert_int_equal(virtio_blk_kind.wipe(d->r.dev, true), DEVICE_WIPING);
    while (virtio_blk_kind.wipe(d->r.dev, false) == DEVICE_WIPING)
        continue;
    assert_int_equal(virtio_blk_kind.wipe(d->r.dev, false), DEVICE_WIPED);
    for (unsigned at = 0; at < STORE_BYTES; at += 511) {
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        assert_int_equal(byte, 0);
    }
    assert_int_equal(ftruncate(fd, STORE_BYTES - 4096),
                     0); /* the control: it cannot be read back */
    assert_int_equal(virtio_blk_kind.wipe(d->r.dev, true), DEVICE_WIPING);
    while (virtio_blk_kind.wipe(d->r.dev, false) == DEVICE_WIPING)
        continue;
    assert_int_equal(virtio_blk_kind.wipe(d->r.dev, false), DEVICE_UNWIPED);
    drv_close(d);
    close(fd);
    (void)unlink(path);
}

/* Written neither by the host nor by a wipe; another device may have the same file. */
static void test_read_only(void **state)
{
    char path[] = "/tmp/virtio-blk-XXXXXX", bytes[4096];
    int fd = mkstemp(path);
    driver *d, *second;
    bool pristine;
    uint64_t shown;
    (void)state;
    assert_true(fd >= 0);
    memset(bytes, 7, sizeof bytes);
    assert_int_equal(ftruncate(fd, STORE_BYTES), 0);
    assert_int_equal(pwrite(fd, bytes, sizeof bytes, 0), sizeof bytes);
    drv_read_only = true;
    d = drv_open(path);
    second = drv_open(path);
    drv_read_only = false;
    assert_int_equal(offered(d) & (1 << 5 | 1 << 13 | 1 << 14), 1 << 5);
    drv_start(d, F_USUAL, 64);
    assert_int_equal(request(d, 0, OUT, 0, MEM_LOW + AT_DATA, 512, 1), 1);
    assert_int_equal(segments(d, WRITE_ZEROES, 1, 0, 1, 0), 1);
    assert_int_equal(request(d, 0, IN, 0, MEM_LOW + AT_DATA, 512, 1), 0);
    assert_memory_equal(d->r.mem + AT_DATA, bytes, 512);
    virtio_blk_kind.reset(d->r.dev);
    assert_int_equal(virtio_blk_kind.wipe(d->r.dev, true), DEVICE_WIPED);
    assert_int_equal(virtio_blk_kind.medium(d->r.dev, &pristine), 0);
    assert_true(pristine);
    shown = virtio_blk_kind.shown(d->r.dev);
    assert_true(shown != 0);
    assert_int_equal(pread(fd, bytes, 1, 0), 1);
    assert_int_equal(bytes[0], 7);
    drv_close(second);
    drv_close(d);
    d = drv_open(path); /* the control: it is that of who writes to it */
    assert_int_equal(virtio_blk_kind.medium(d->r.dev, &pristine), shown);
    assert_int_equal(virtio_blk_kind.shown(d->r.dev), 0);
    drv_close(d);
    close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v49_values_of_what_is_gone),
        cmocka_unit_test(test_capabilities),
        cmocka_unit_test(test_features_are_negotiated),
        cmocka_unit_test(test_registers),
        cmocka_unit_test(test_configuration_access),
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_lengths_and_serial),
        cmocka_unit_test(test_read_with_long_header),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_discard_and_zeroes),
        cmocka_unit_test(test_data_that_cannot_be_read),
        cmocka_unit_test(test_many_requests),
        cmocka_unit_test(test_index_wraps),
        cmocka_unit_test(test_interrupts_are_suppressed),
        cmocka_unit_test(test_interrupt_asked_late),
        cmocka_unit_test(test_indirect),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_hostile_chains),
        cmocka_unit_test(test_index_jumps),
        cmocka_unit_test(test_notified_index),
        cmocka_unit_test(test_bad_queues),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_reset_in_every_state),
        cmocka_unit_test(test_queue_reset),
        cmocka_unit_test(test_no_bus_mastering),
        cmocka_unit_test(test_reset_waits_for_the_medium),
        cmocka_unit_test(test_file_and_wipe),
        cmocka_unit_test(test_read_only),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
