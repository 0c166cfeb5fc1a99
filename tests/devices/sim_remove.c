/* sim_remove.c - a device is removed at every point of a request, in virtual time
   SPDX-License-Identifier: MIT

   A driver (virtio_driver.h) has a virtio block device behind a pair of channels.  The network is
   cut after the first frame of a request, or the second, and so on; the host's channel ends after
   its hold time, the box resets the device, and the next incarnation has it again.  Whatever
   arrived is whole: a used entry has its data and its status in front of it, an interrupt its used
   entry.  A sector of the disk is the old one or the new one.  The controls lose one write each.

   CONTENTS   1 Fabric   2 Driver   3 Tests */
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

#include <cmocka.h>

#include "virtio_blk.h"

#define RC_MEM_BYTES (6 << 20)
#include "virtio_driver.h"

/* ==== 1  Fabric =============================================================================== */

enum { HOST, BOX };
enum { HOLD_MS = 1000, QUIET_NS = 20000000, LOSS = 9, NEVER = 1 << 30 };

/* A device behind channels, which is the kind that the root complex sees. */
typedef struct fabric {
    rc *r; /* once the device was asked something */
    void *device;
    dxpu_channel ch[2];
    void *mem[2];
    device_port port;
    tlp_fifo waits[2]; /* what a channel had no room for */
    uint64_t now_ns, busy_ns, epoch;
    unsigned carried, cut_at; /* frames; the first that is not carried */
    unsigned sent;            /* frames in all, of which each LOSS-th is lost */
    unsigned written, forget; /* writes that arrived at the host; the one that a control loses */
} fabric;

static fabric net;

static void channel_new(int end)
{
    dxpu_channel_config cfg;
    size_t bytes;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = 100u + (unsigned)end + 2 * (uint32_t)net.epoch;
    cfg.epoch = net.epoch;
    cfg.hold_ms = HOLD_MS;
    bytes = dxpu_channel_bytes(&cfg);
    free(net.mem[end]);
    net.mem[end] = malloc(bytes);
    assert_non_null(net.mem[end]);
    assert_int_equal(dxpu_channel_init(&net.ch[end], &cfg, net.mem[end], bytes), DXPU_OK);
    fifo_clear(&net.waits[end]);
}

static bool is_over(int end)
{
    uint8_t state = dxpu_channel_status(&net.ch[end]).state;
    return state != DXPU_STATE_IDLE && state != DXPU_STATE_OPENING && state != DXPU_STATE_UP;
}

static void submit_waiting(int end)
{
    tlp_fifo *f = &net.waits[end];
    while (f->head) {
        dxpu_bytes b = { f->head->bytes, f->head->len };
        if (dxpu_channel_submit(&net.ch[end], b, net.now_ns, 0) != DXPU_OK)
            return;
        free(fifo_get(f));
    }
}

static void arrived_at_host(dxpu_bytes tlp)
{
    dxpu_tlp t;
    assert_int_equal(dxpu_tlp_decode(tlp, &t), DXPU_OK);
    if (t.type == DXPU_TLP_MWR && net.written++ == net.forget)
        return;
    net.r->port.emit(net.r->port.user, tlp);
}

static void take_all(int end)
{
    for (unsigned cls = 0; cls < 3; cls++) {
        dxpu_bytes b;
        while ((b = dxpu_channel_peek(&net.ch[end], cls).tlp).len) {
            dxpu_tlp t;
            net.busy_ns = net.now_ns;
            if (end == HOST) {
                arrived_at_host(b);
            } else {
                assert_int_equal(dxpu_tlp_decode(b, &t), DXPU_OK);
                virtio_blk_kind.tlp(net.device, &t, b);
            }
            dxpu_channel_take(&net.ch[end], cls, net.now_ns);
        }
    }
}

static bool carry(int from)
{
    static uint8_t frame[DXPU_FRAME_MAX_LIMIT_BYTES];
    dxpu_channel *to = &net.ch[!from];
    uint8_t path;
    bool any = false;
    int n;
    submit_waiting(from);
    while ((n = dxpu_channel_emit(&net.ch[from], net.now_ns, frame, sizeof frame, &path)) > 0) {
        any = true;
        if (net.carried >= net.cut_at)
            continue;
        net.carried++;
        if (++net.sent % LOSS == 0)
            continue;
        if (dxpu_channel_status(to).state == DXPU_STATE_IDLE)
            (void)dxpu_channel_accept(to, net.now_ns, frame, (size_t)n);
        else
            (void)dxpu_channel_ingest(to, net.now_ns, frame, (size_t)n, 0);
        take_all(!from);
    }
    return any;
}

/* Until no TLP has arrived for `quiet_ns`. */
static void pump(uint64_t quiet_ns)
{
    net.busy_ns = net.now_ns;
    while (net.now_ns < net.busy_ns + quiet_ns) {
        uint64_t next[2];
        bool any = carry(HOST);
        any |= carry(BOX);
        if (any)
            continue;
        next[HOST] = dxpu_channel_next_ns(&net.ch[HOST]);
        next[BOX] = dxpu_channel_next_ns(&net.ch[BOX]);
        next[HOST] = next[BOX] < next[HOST] ? next[BOX] : next[HOST];
        if (next[HOST] > net.busy_ns + quiet_ns)
            next[HOST] = net.busy_ns + quiet_ns;
        net.now_ns = next[HOST] > net.now_ns ? next[HOST] : net.now_ns + 1000;
    }
}

static void device_emitted(void *user, dxpu_bytes tlp)
{
    (void)user;
    fifo_put(&net.waits[BOX], tlp);
}

static void incarnation(void)
{
    net.epoch++;
    net.cut_at = NEVER;
    net.forget = NEVER;
    channel_new(HOST);
    channel_new(BOX);
    assert_int_equal(dxpu_channel_open(&net.ch[HOST], net.now_ns), DXPU_OK);
    pump(QUIET_NS);
    assert_int_equal(dxpu_channel_status(&net.ch[HOST]).state, DXPU_STATE_UP);
}

/* device_kind.create */
static void *wire_create(const device_settings *s, const device_port *port)
{
    memset(&net, 0, sizeof net);
    net.r = port->user;
    net.now_ns = 1;
    net.port.emit = device_emitted;
    net.device = virtio_blk_kind.create(s, &net.port);
    assert_non_null(net.device);
    incarnation();
    return &net;
}

static void wire_destroy(void *device)
{
    (void)device;
    for (int end = HOST; end <= BOX; end++) {
        fifo_clear(&net.waits[end]);
        free(net.mem[end]);
    }
    virtio_blk_kind.destroy(net.device);
}

static void wire_tlp(void *device, const dxpu_tlp *t, dxpu_bytes bytes)
{
    (void)device;
    (void)t;
    fifo_put(&net.waits[HOST], bytes);
    pump(QUIET_NS);
}

static const device_kind wire = { .create = wire_create, .destroy = wire_destroy, .tlp = wire_tlp };

/* ==== 2  Driver =============================================================================== */

enum { IN = 0, OUT = 1, BYTES = 4096, SECTOR = 512, OLD = 3, NEW = 90 };
enum { AT_STATUS = AT_HEADERS + 32 };
#define FEATURES (F_VERSION_1 | F_PLATFORM)

static driver *driver_new(void)
{
    device_settings s = { .memory_bytes = 1 << 20, .mps_bytes = 256, .identity = 0x77 };
    driver *d = drv_create(&wire, &s, 4);
    drv_start(d, FEATURES, 16);
    return d;
}

/* One that is answered, or cut off. */
static void request(driver *d, uint32_t type)
{
    uint8_t *table = ring_mem(d, 0, 0), *header = d->r.mem + AT_HEADERS;
    memset(header, 0, 16);
    dxpu_put_le32(header, type);
    d->r.mem[AT_STATUS] = 0xff;
    put_desc(table, 0, MEM_LOW + AT_HEADERS, 16, NEXT, 1);
    put_desc(table, 1, MEM_LOW + AT_DATA, BYTES, NEXT | (type == IN ? WRITE : 0u), 2);
    put_desc(table, 2, MEM_LOW + AT_STATUS, 1, WRITE, 0);
    avail_put(d, 0, 0);
    notify(d, 0);
    rc_run(&d->r);
}

static void done(driver *d, uint32_t type)
{
    uint32_t head, len;
    request(d, type);
    assert_true(reap(d, 0, &head, &len));
    assert_int_equal(d->r.mem[AT_STATUS], 0);
}

static bool holds(const driver *d, unsigned at, unsigned bytes, unsigned seed)
{
    uint8_t all[BYTES];
    fill(all, BYTES, seed);
    return !memcmp(d->r.mem + AT_DATA + at, all + at, bytes);
}

/* What the driver finds of a request is whole. */
static bool is_whole(driver *d, uint32_t type, bool was_used)
{
    bool used = used_index(d, 0) != d->q[0].seen;
    if (was_used && !used)
        return false; /* of a control: nothing is cut, so it must have been */
    if (d->r.msi_count[1] && !used)
        return false;
    return !used || (d->r.mem[AT_STATUS] == 0 && (type == OUT || holds(d, 0, BYTES, OLD)));
}

/* The network is cut at this frame of the request: what arrived, and that nothing comes after. */
static void cut_off(driver *d, uint32_t type, unsigned at)
{
    static uint8_t before[RC_MEM_BYTES];
    unsigned writes;
    net.carried = 0;
    net.cut_at = at;
    memset(d->r.msi_count, 0, sizeof d->r.msi_count);
    request(d, type);
    pump((uint64_t)HOLD_MS * 3000000);
    rc_run(&d->r);
    assert_true(is_over(HOST) && is_over(BOX));
    assert_true(is_whole(d, type, false));
    memcpy(before, d->r.mem, sizeof before);
    writes = d->r.writes;
    pump((uint64_t)HOLD_MS * 3000000);
    rc_look(&d->r);
    assert_int_equal(d->r.writes, writes);
    assert_memory_equal(before, d->r.mem, sizeof before);
}

/* As a box does, and a driver of what was hot-added. */
static void back(driver *d)
{
    virtio_blk_kind.reset(net.device);
    incarnation();
    rc_forget(&d->r);
    drv_enumerate(d);
    drv_msix(d);
    drv_start(d, FEATURES, 16);
}

/* ==== 3  Tests ================================================================================ */

static unsigned frames_of(driver *d, uint32_t type)
{
    net.carried = 0;
    done(d, type);
    return net.carried;
}

static void test_removed_while_it_reads(void **state)
{
    driver *d = driver_new();
    unsigned frames, used = 0;
    (void)state;
    fill(d->r.mem + AT_DATA, BYTES, OLD);
    done(d, OUT);
    frames = frames_of(d, IN);
    assert_true(frames > 8);
    for (unsigned at = 0; at < frames; at++) {
        memset(d->r.mem + AT_DATA, 0, BYTES);
        cut_off(d, IN, at);
        used += used_index(d, 0) != d->q[0].seen;
        back(d);
        memset(d->r.mem + AT_DATA, 0, BYTES);
        done(d, IN);
        assert_true(holds(d, 0, BYTES, OLD));
    }
    assert_true(used > 0 && used < frames); /* it was cut before and behind the entry */
    drv_close(d);
}

static void test_removed_while_it_writes(void **state)
{
    driver *d = driver_new();
    unsigned frames, news = 0;
    (void)state;
    frames = frames_of(d, OUT);
    assert_true(frames > 8);
    for (unsigned at = 0; at < frames; at++) {
        bool used;
        fill(d->r.mem + AT_DATA, BYTES, OLD);
        done(d, OUT);
        fill(d->r.mem + AT_DATA, BYTES, NEW);
        cut_off(d, OUT, at);
        used = used_index(d, 0) != d->q[0].seen;
        back(d);
        done(d, IN);
        for (unsigned s = 0; s < BYTES; s += SECTOR) {
            bool is_new = holds(d, s, SECTOR, NEW);
            assert_true(is_new || (!used && holds(d, s, SECTOR, OLD)));
            news += is_new;
        }
    }
    assert_true(news > 0 && news < frames * (BYTES / SECTOR));
    drv_close(d);
}

/* Each write that arrives is lost in turn: whichever it is, it is seen. */
static void test_control_lost_writes_are_seen(void **state)
{
    driver *d = driver_new();
    unsigned writes, seen = 0;
    (void)state;
    fill(d->r.mem + AT_DATA, BYTES, OLD);
    done(d, OUT);
    net.written = 0;
    done(d, IN);
    writes = net.written;
    assert_true(writes >= BYTES / 256 + 3); /* data, status, entry, index, interrupt */
    for (unsigned n = 0; n < writes; n++) {
        memset(d->r.mem + AT_DATA, 0, BYTES);
        memset(d->r.msi_count, 0, sizeof d->r.msi_count);
        net.written = 0;
        net.forget = n;
        request(d, IN);
        seen += !is_whole(d, IN, true);
        back(d);
    }
    assert_true(seen >= writes - 2); /* but for the entry, of which the index says as much, and
                                        the interrupt */
    drv_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_removed_while_it_reads),
        cmocka_unit_test(test_removed_while_it_writes),
        cmocka_unit_test(test_control_lost_writes_are_seen),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests_name("hot-removal", tests, NULL, NULL);
}
