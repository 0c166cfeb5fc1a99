/* unit_net_tap.c - the virtio network adapter in front of a tap of two queues
   SPDX-License-Identifier: MIT

   The tap is made of two datagram sockets and of an ioctl() that counts what it is asked to do.
   CONTENTS   1 A tap   2 Driver   3 Tests */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static int tap_open(const char *path);
static int tap_ioctl(unsigned long what, unsigned long value);
#define open(path, flags)      tap_open(path)
#define ioctl(fd, what, value) ((void)(fd), tap_ioctl(what, (unsigned long)(value)))
#define if_nametoindex(name)   (0x40000000u + (unsigned)getpid()) /* tests run side by side */
#include "net_port.c" /* not linked: replaces open(), ioctl(), if_nametoindex() */
#undef open
#undef ioctl
#undef if_nametoindex

#include "virtio_net.h"

#include "virtio_net_driver.h"

/* ==== 1  A tap ================================================================================ */

enum { TAP_QUEUES = 2, RX2 = 2, TX2 = 3 };

static struct {
    int near[TAP_QUEUES], far[TAP_QUEUES];
    unsigned opened;
    unsigned offload_calls, other_calls; /* since the tap was opened */
    unsigned long offloads, refused;     /* TUN_F_... */
    short flags;                         /* of an inherited descriptor's interface; 0: no tap */
} tap;

static int tap_open(const char *path)
{
    assert_string_equal(path, "/dev/net/tun");
    assert_true(tap.opened < TAP_QUEUES);
    return tap.near[tap.opened++];
}

static int tap_ioctl(unsigned long what, unsigned long value)
{
    struct ifreq *r = (struct ifreq *)value; /* where `what` has one */
    switch (what) {
    case TUNGETIFF:
        if (!tap.flags) {
            errno = ENOTTY;
            return -1;
        }
        strcpy(r->ifr_name, "tap0");
        r->ifr_flags = tap.flags;
        return 0;
    case TUNSETIFF:
    case TUNSETVNETHDRSZ:
    case TUNSETVNETLE:
        return 0;
    case TUNSETOFFLOAD:
        tap.offload_calls++;
        if (value & tap.refused) {
            errno = EINVAL;
            return -1;
        }
        tap.offloads = value;
        return 0;
    default:
        tap.other_calls++;
        return 0;
    }
}

/* ==== 2  Driver =============================================================================== */

#define F_TWO (F_USUAL | F_MQ)

static driver *drv_open(void)
{
    device_settings s = { .mps_bytes = 256, .identity = 0x1122334455, .tap = "tap0" };
    memset(&tap, 0, sizeof tap);
    for (unsigned i = 0; i < TAP_QUEUES; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends), 0);
        tap.near[i] = ends[0];
        tap.far[i] = ends[1];
    }
    return drv_create(&virtio_net_kind, &s, 2 * TAP_QUEUES + 1);
}

static driver *drv_up(uint64_t features)
{
    driver *d = drv_open();
    tick(d);
    drv_start(d, features, 128);
    return d;
}

static void end(driver *d)
{
    drv_close(d);
    for (unsigned i = 0; i < TAP_QUEUES; i++)
        (void)close(tap.far[i]);
}

static uint8_t set_pairs(driver *d, uint8_t pairs)
{
    uint8_t b[2] = { pairs, 0 };
    return control(d, 4, 0, b, 2);
}

static void put_frame(unsigned queue, uint32_t bytes)
{
    uint8_t f[ROOM];
    make_frame(f, bytes, 1);
    assert_int_equal(send(tap.far[queue], f, bytes, 0), bytes);
}

/* As many as the queue holds. */
static void fill_queue(unsigned queue, uint32_t bytes, bool to_driver)
{
    uint8_t f[ROOM];
    make_frame(f, bytes, 1);
    f[HEADER] ^= to_driver ? 0 : 4;
    while (send(tap.far[queue], f, bytes, 0) == bytes)
        continue;
}

/* ==== 3  Tests ================================================================================ */

/* An interface that a slot has is not opened for another. */
static void test_tap_of_another_slot(void **state)
{
    driver *d = drv_open();
    device_settings s = { .mps_bytes = 256, .tap = "tap0" };
    device_port port = { 0 };
    (void)state;
    tap.opened = 0;
    assert_null(virtio_net_kind.create(&s, &port));
    assert_int_equal(tap.opened, 0);
    end(d);
    end(drv_open()); /* the lock ends with the device */
}

static bool is_accepted(int fd, short flags)
{
    device_settings s = { .mps_bytes = 256, .descriptor = (uint64_t)fd };
    device_port port = { 0 };
    void *device;
    tap.flags = flags;
    device = virtio_net_kind.create(&s, &port);
    if (device)
        virtio_net_kind.destroy(device);
    else
        (void)close(fd);
    return device;
}

static int one_of(int type)
{
    int ends[2];
    assert_int_equal(type ? socketpair(AF_UNIX, type, 0, ends) : pipe(ends), 0);
    (void)close(ends[1]);
    return ends[0];
}

/* Where a header would be taken for the beginning of a frame, or frames have no limits. */
static void test_inherited_descriptors(void **state)
{
    const short good = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    driver *d;
    (void)state;
    assert_true(is_accepted(one_of(SOCK_DGRAM), 0));
    assert_true(is_accepted(one_of(SOCK_SEQPACKET), 0));
    assert_false(is_accepted(one_of(SOCK_STREAM), 0));
    assert_false(is_accepted(one_of(0), 0));
    assert_false(is_accepted(0x10000, 0));
    assert_true(is_accepted(one_of(SOCK_DGRAM), good));
    assert_false(is_accepted(one_of(SOCK_DGRAM), good & ~IFF_VNET_HDR));
    assert_false(is_accepted(one_of(SOCK_DGRAM), good & ~IFF_NO_PI));
    assert_false(is_accepted(one_of(SOCK_DGRAM), (good & ~IFF_TAP) | IFF_TUN));
    d = drv_open();
    assert_false(is_accepted(one_of(SOCK_DGRAM), good)); /* another slot has this tap */
    end(d);
}

/* Frames of both queues of the tap reach the pairs that the driver uses. */
static void test_two_pairs(void **state)
{
    driver *d = drv_up(F_TWO);
    uint8_t got[ROOM];
    (void)state;
    assert_int_equal(get(d, d->config + 8, 2), 2);
    give_buffers_to(d, RX, 0, 8, 1600);
    give_buffers_to(d, RX2, 10, 8, 1600);
    put_frame(0, 100);
    put_frame(1, 101);
    tick(d); /* a driver begins with one pair */
    expect_used(d, RX, 0, 100);
    expect_used(d, RX, 1, 101);
    assert_int_equal(set_pairs(d, 0), 1);
    assert_int_equal(set_pairs(d, 3), 1);
    assert_int_equal(set_pairs(d, 2), 0);
    put_frame(0, 102);
    put_frame(1, 103);
    tick(d);
    expect_used(d, RX, 2, 102);
    expect_used(d, RX2, 10, 103);
    assert_int_equal(set_pairs(d, 1), 0);
    put_frame(0, 104);
    put_frame(1, 105);
    tick(d);
    expect_used(d, RX, 3, 104);
    expect_used(d, RX, 4, 105);
    expect_nothing(d, RX2);
    make_frame(buffer(d, 20), 200, 1);
    put_desc(ring_mem(d, TX2, 0), 0, MEM_LOW + AT_DATA + 20 * (uint64_t)ROOM, 200, 0, 0);
    avail_put(d, TX2, 0);
    notify(d, TX2);
    rc_run(&d->r);
    assert_int_equal(recv(tap.far[1], got, sizeof got, 0), 200);
    end(d);
}

/* The frame that waits for buffers of a pair that is given up does not hold up others later. */
static void test_pair_is_given_up(void **state)
{
    driver *d = drv_up(F_TWO);
    (void)state;
    assert_int_equal(set_pairs(d, 2), 0);
    give_buffers_to(d, RX2, 0, 1, 100);
    put_frame(1, 150);
    tick(d);
    expect_nothing(d, RX2);
    assert_int_equal(set_pairs(d, 1), 0);
    assert_int_equal(set_pairs(d, 2), 0);
    put_frame(1, 99);
    tick(d);
    expect_used(d, RX2, 0, 99);
    end(d);
}

/* However many commands a driver makes available, none costs a system call. */
static void test_commands_cost_no_system_call(void **state)
{
    driver *d = drv_up(F_TWO);
    uint8_t *c = d->r.mem + AT_HEADERS;
    unsigned queue = d->queues - 1, before = tap.offload_calls;
    (void)state;
    assert_int_equal(tap.offload_calls, 1);
    for (unsigned i = 0; i < 2; i++) {
        memcpy(c + i * 64, "\4\0\1", 4);
        c[i * 64 + 2] = (uint8_t)(2 - i);
    }
    for (unsigned i = 0; i < 64; i++) {
        put_desc(ring_mem(d, queue, 0), 2 * i, MEM_LOW + AT_HEADERS + i % 2 * 64, 4, NEXT,
                 2 * i + 1);
        put_desc(ring_mem(d, queue, 0), 2 * i + 1, MEM_LOW + AT_HEADERS + 0x1000 + i, 1, WRITE, 0);
        avail_put(d, queue, (uint16_t)(2 * i));
    }
    memset(c + 0x1000, 9, 64);
    notify(d, queue);
    rc_run(&d->r);
    assert_int_equal(used_index(d, queue), 64);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(c[0x1000 + i], 0);
    for (unsigned i = 0; i < 16; i++)
        set_common(d, STATUS, 0, 1);
    assert_int_equal(tap.offload_calls, before);
    assert_int_equal(tap.other_calls, 0);
    end(d);
}

/* Drivers that start repeatedly: the interface is set once for each tick, when it changes. */
static void test_starts_are_bounded(void **state)
{
    driver *d = drv_open();
    (void)state;
    tick(d);
    for (unsigned i = 0; i < 20; i++)
        drv_start(d, F_TWO | (i % 2 ? F_GUEST_CSUM : 0), 64);
    assert_int_equal(tap.offload_calls, 1);
    tick(d);
    assert_int_equal(tap.offload_calls, 2);
    assert_int_equal(tap.offloads, TUN_F_CSUM);
    for (unsigned i = 0; i < 20; i++) {
        drv_start(d, F_TWO | F_GUEST_CSUM, 64);
        tick(d);
    }
    assert_int_equal(tap.offload_calls, 2);
    end(d);
}

/* Where the kernel does not do what a driver accepted, nothing stays of the driver before it. */
static void test_refused_offload(void **state)
{
    driver *d = drv_up(F_TWO | F_GUEST_CSUM);
    (void)state;
    assert_int_equal(tap.offloads, TUN_F_CSUM);
    tap.refused = TUN_F_TSO4;
    tick(d);
    drv_start(d, F_TWO | F_GUEST_CSUM | F_GUEST_TSO4, 64);
    assert_int_equal(tap.offloads, 0);
    end(d);
}

/* All that both queues hold is of before the driver's start, if it takes several ticks. */
static void test_all_of_before_is_dropped(void **state)
{
    driver *d = drv_open();
    (void)state;
    for (unsigned i = 0; i < TAP_QUEUES; i++)
        fill_queue(i, 60, true);
    tick(d);
    drv_start(d, F_TWO, 64);
    give_buffers(d, 0, 8, 1600);
    for (unsigned i = 0; i < 6; i++)
        tick(d);
    expect_nothing(d, RX);
    put_frame(0, 100);
    put_frame(1, 101);
    tick(d);
    expect_used(d, RX, 0, 100);
    expect_used(d, RX, 1, 101);
    end(d);
}

/* A flood that never ends does not keep a driver from its first frame. */
static void test_start_in_a_flood(void **state)
{
    driver *d = drv_up(F_TWO);
    (void)state;
    give_buffers(d, 0, 8, 1600);
    set_common(d, STATUS, 0, 1);
    fill_queue(0, 60, true);
    drv_start(d, F_TWO, 64);
    give_buffers(d, 0, 8, 1600);
    for (unsigned i = 0; i < 12; i++) {
        fill_queue(0, 60, true);
        tick(d);
    }
    expect_used(d, RX, 0, 60);
    end(d);
}

/* A flood of one queue, all filtered, leaves the other its turn. */
static void test_flood_of_one_queue(void **state)
{
    driver *d = drv_up(F_TWO | F_CTRL_RX);
    (void)state;
    assert_int_equal(control(d, 0, 0, "", 1), 0);
    assert_int_equal(set_pairs(d, 2), 0);
    give_buffers_to(d, RX, 0, 8, 1600);
    give_buffers_to(d, RX2, 10, 8, 1600);
    for (unsigned i = 0; i < 8; i++) {
        fill_queue(0, 60, false);
        put_frame(1, 100 + i);
        tick(d);
        expect_used(d, RX2, 10 + i, 100 + i);
    }
    expect_nothing(d, RX);
    end(d);
}

/* Long frames of one pair that do not leave keep none of the other from leaving. */
static void test_pairs_send_beside_each_other(void **state)
{
    driver *d = drv_up(F_TWO);
    uint8_t f[60] = { 0 };
    (void)state;
    assert_int_equal(set_pairs(d, 2), 0);
    while (send(tap.near[0], f, sizeof f, 0) > 0) /* it holds no more */
        continue;
    for (uint16_t i = 0; i < 128; i++) {
        put_desc(ring_mem(d, TX, 0), i, MEM_LOW + AT_DATA, 32768, 0, 0);
        avail_put(d, TX, i);
    }
    notify(d, TX);
    rc_run(&d->r);
    assert_int_equal(used_index(d, TX), 0);
    put_desc(ring_mem(d, TX2, 0), 0, MEM_LOW + AT_DATA, 200, 0, 0);
    avail_put(d, TX2, 0);
    notify(d, TX2);
    rc_run(&d->r);
    expect_used(d, TX2, 0, 0);
    end(d);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tap_of_another_slot),
        cmocka_unit_test(test_inherited_descriptors),
        cmocka_unit_test(test_two_pairs),
        cmocka_unit_test(test_pair_is_given_up),
        cmocka_unit_test(test_commands_cost_no_system_call),
        cmocka_unit_test(test_starts_are_bounded),
        cmocka_unit_test(test_refused_offload),
        cmocka_unit_test(test_all_of_before_is_dropped),
        cmocka_unit_test(test_start_in_a_flood),
        cmocka_unit_test(test_flood_of_one_queue),
        cmocka_unit_test(test_pairs_send_beside_each_other),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
