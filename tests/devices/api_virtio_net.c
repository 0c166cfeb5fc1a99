/* api_virtio_net.c - the virtio network adapter under a driver that knows only the standard
   SPDX-License-Identifier: MIT

   The other end of its frames is a datagram socket.  Numbers are those of Virtual I/O Device 1.2,
   5.1, not of the model's headers.

   CONTENTS   1 Driver   2 What the device says   3 Sending   4 Receiving   5 Control
              6 Hostile drivers   7 Resets */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "virtio_net.h"

#include "virtio_net_driver.h"

/* ==== 1  Driver =============================================================================== */

static int wire, device_end; /* of the device's frames */

static driver *drv_open_at(int far, int near)
{
    device_settings s = { .mps_bytes = 256, .identity = 0x1122334455 };
    wire = far;
    device_end = near;
    s.descriptor = (uint64_t)device_end;
    return drv_create(&virtio_net_kind, &s, QUEUES);
}

static driver *drv_open(void)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends), 0);
    return drv_open_at(ends[0], ends[1]);
}

static void end(driver *d)
{
    drv_close(d);
    (void)close(wire);
}

static driver *drv_up(uint64_t features)
{
    driver *d = drv_open();
    drv_start(d, features, 64);
    tick(d);
    return d;
}

static void put_on_wire(const uint8_t *f, uint32_t bytes)
{
    assert_int_equal(send(wire, f, bytes, 0), bytes);
}

/* ==== 2  What the device says ================================================================= */

static void test_identity_and_configuration(void **state)
{
    driver *d = drv_open();
    uint64_t f = offered(d);
    (void)state;
    assert_int_equal(cfg_read(&d->r, 0x00), 0x10411af4);
    char said[DEVICE_ATTRIBUTES_BYTES], attributes[DEVICE_ATTRIBUTES_BYTES]; /* M-155 */
    snprintf(attributes, sizeof attributes, "uplink=fd%d", device_end);
    virtio_net_kind.attributes(d->r.dev, said);
    assert_string_equal(said, attributes);
    assert_int_equal(cfg_read(&d->r, 0x08) >> 8, 0x020000);
    assert_int_equal(common(d, NUM_QUEUES, 2), QUEUES);
    assert_int_equal(get(d, d->config, 4), 0x33221102);
    assert_int_equal(get(d, d->config + 4, 2), 0x5544);
    assert_int_equal(get(d, d->config + 6, 2), 1); /* link up */
    assert_int_equal(get(d, d->config + 8, 2), 1); /* pairs */
    assert_true((f & (F_FILTERS | F_CSUM | F_GUEST_CSUM | F_GUEST_TSO4 | F_HOST_TSO4 | F_STATUS)) ==
                (F_FILTERS | F_CSUM | F_GUEST_CSUM | F_GUEST_TSO4 | F_HOST_TSO4 | F_STATUS));
    assert_false(f & F_MQ); /* one descriptor, one pair */
    end(d);
}

/* A driver that accepts a feature without what it requires (5.1.3.1) is refused. */
static void test_features_that_others_require(void **state)
{
    static const struct {
        uint64_t feature, required;
    } rules[] = { { F_GUEST_TSO4, F_GUEST_CSUM },
                  { F_GUEST_TSO6, F_GUEST_CSUM },
                  { F_GUEST_ECN, F_GUEST_CSUM | F_GUEST_TSO4 },
                  { F_GUEST_ECN, F_GUEST_CSUM | F_GUEST_TSO6 },
                  { F_HOST_TSO4, F_CSUM },
                  { F_HOST_TSO6, F_CSUM },
                  { F_HOST_ECN, F_CSUM | F_HOST_TSO4 },
                  { F_HOST_ECN, F_CSUM | F_HOST_TSO6 },
                  { F_CTRL_RX, F_CTRL },
                  { F_CTRL_VLAN, F_CTRL },
                  { F_CTRL_EXTRA, F_CTRL },
                  { F_CTRL_MAC, F_CTRL } };
    driver *d = drv_open();
    (void)state;
    for (unsigned i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        assert_false(negotiate(d, F_VERSION_1 | rules[i].feature));
        assert_true(negotiate(d, F_VERSION_1 | rules[i].required));
        assert_true(negotiate(d, F_VERSION_1 | rules[i].feature | rules[i].required));
    }
    end(d);
}

/* ==== 3  Sending ============================================================================== */

static void test_frames_leave_in_order(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        driver *d = drv_up(F_USUAL);
        uint8_t got[ROOM];
        for (unsigned i = 0; i < 16; i++) {
            make_frame(buffer(d, i * 2), 60 + i * 97, round + i);
            submit(d, i * 2, 60 + i * 97);
        }
        notify(d, TX);
        rc_run(&d->r);
        for (unsigned i = 0; i < 16; i++) {
            assert_int_equal(recv(wire, got, sizeof got, 0), 60 + i * 97);
            assert_memory_equal(got, buffer(d, i * 2), 60 + i * 97);
            expect_used(d, TX, i * 2, 0);
        }
        assert_true(d->r.msi_count[TX + 1] > 0);
        end(d);
    }
}

/* The header reaches the other end as the driver wrote it. */
static void test_offloads_are_passed_on(void **state)
{
    driver *d = drv_up(F_USUAL | F_CSUM | F_HOST_TSO4);
    uint8_t got[ROOM], *f = buffer(d, 0);
    (void)state;
    make_frame(f, 1500, 3);
    memcpy(f, "\x01\x01\x36\x00\x00\x02\x22\x00\x10\x00", 10);
    submit(d, 0, 1500);
    notify(d, TX);
    rc_run(&d->r);
    assert_int_equal(recv(wire, got, sizeof got, 0), 1500);
    assert_memory_equal(got, f, 1500);
    end(d);
}

/* While the other end takes none, frames wait, and are used when they have left. */
static void test_frames_wait_for_the_wire(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t got[ROOM];
    unsigned sent = 0, seen = 0;
    const int few = 10000;
    (void)state;
    assert_int_equal(setsockopt(device_end, SOL_SOCKET, SO_SNDBUF, &few, sizeof few), 0);
    for (unsigned round = 0; round < 8; round++) {
        for (unsigned i = 0; i < 32; i++) {
            make_frame(buffer(d, i * 2), 1500, round * 32 + i);
            submit(d, i * 2, 1500);
        }
        notify(d, TX);
        rc_run(&d->r);
        sent += 32;
        if (round == 0) /* the socket keeps some ten */
            assert_true(used_index(d, TX) < 32);
        while (used_index(d, TX) != sent) {
            while (recv(wire, got, sizeof got, 0) == 1500) {
                assert_int_equal(got[100], (uint8_t)(100 * 7 + seen));
                seen++;
            }
            tick(d);
        }
        d->q[TX].seen = (uint16_t)sent;
    }
    assert_true(seen >= sent - 32);
    end(d);
}

/* ==== 4  Receiving ============================================================================ */

static void test_frame_is_received(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t f[ROOM];
    (void)state;
    give_buffers(d, 0, 4, 1600);
    make_frame(f, 1000, 5);
    put_on_wire(f, 1000);
    put_on_wire(f, 60);
    tick(d);
    expect_used(d, RX, 0, 1000);
    expect_used(d, RX, 1, 60);
    expect_nothing(d, RX);
    assert_int_equal(dxpu_get_le16(buffer(d, 0) + 10), 1);
    assert_memory_equal(buffer(d, 0) + HEADER, f + HEADER, 1000 - HEADER);
    assert_true(d->r.msi_count[RX + 1] > 0);
    end(d);
}

/* Buffers are known beforehand: no read comes between a frame and its used entry. */
static void test_no_round_trip_to_receive(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t f[ROOM];
    (void)state;
    give_buffers(d, 0, 8, 1600);
    make_frame(f, 1000, 5);
    put_on_wire(f, 1000);
    d->r.hold = true; /* no read is answered */
    tick(d);
    expect_used(d, RX, 0, 1000);
    assert_int_equal(d->r.msi_count[RX + 1], 1);
    end(d);
}

static void test_buffers_are_merged(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t f[6000];
    (void)state;
    give_buffers(d, 0, 3, 1600);
    make_frame(f, 6000, 5);
    put_on_wire(f, 6000);
    tick(d);
    expect_nothing(d, RX); /* one more is needed: it waits */
    give_buffers(d, 3, 4, 1600);
    assert_int_equal(dxpu_get_le16(buffer(d, 0) + 10), 4);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t bytes = i < 3 ? 1600 : 1200, skip = i ? 0 : HEADER;
        expect_used(d, RX, i, bytes);
        assert_memory_equal(buffer(d, i) + skip, f + i * 1600 + skip, bytes - skip);
    }
    expect_nothing(d, RX);
    put_on_wire(f, 100);
    tick(d);
    expect_used(d, RX, 4, 100);
    end(d);
}

/* A driver that never has enough buffers gets what fits, after a second. */
static void test_wait_for_buffers_is_bounded(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t f[6000];
    (void)state;
    give_buffers(d, 0, 3, 1600);
    make_frame(f, 6000, 5);
    put_on_wire(f, 6000);
    put_on_wire(f, 100);
    tick(d);
    now_ns += 990000000;
    tick(d);
    expect_nothing(d, RX);
    now_ns += 10000000;
    tick(d);
    expect_used(d, RX, 0, 100);
    expect_nothing(d, RX);
    end(d);
}

/* What fits into no buffer, or not into all of them, is dropped, and the next one comes. */
static void test_too_long_for_its_buffers(void **state)
{
    (void)state;
    for (unsigned merged = 0; merged < 2; merged++) {
        driver *d = drv_up(merged ? F_USUAL : F_USUAL & ~F_MRG);
        uint8_t f[8000];
        make_frame(f, 8000, 5);
        give_buffers(d, 0, 64, 100);
        put_on_wire(f, merged ? 6401 : 101);
        put_on_wire(f, merged ? 6400 : 100);
        tick(d);
        expect_used(d, RX, 0, 100);
        assert_int_equal(used_index(d, RX), merged ? 64 : 1);
        end(d);
    }
}

/* A driver that negotiated no offload gets nothing that needs one. */
static void test_offloads_that_were_not_negotiated(void **state)
{
    uint8_t f[ROOM];
    (void)state;
    for (unsigned how = 0; how < 2; how++) {
        driver *d = drv_up(F_USUAL | (how ? F_GUEST_CSUM | F_GUEST_TSO4 : 0));
        give_buffers(d, 0, 8, 1600);
        make_frame(f, 100, 5);
        f[0] = 1; /* needs a checksum */
        put_on_wire(f, 100);
        f[0] = 0;
        f[1] = 1; /* of several segments */
        put_on_wire(f, 101);
        f[1] = 4; /* the same by IPv6 */
        put_on_wire(f, 102);
        f[1] = 0;
        f[0] = 2; /* its checksum was checked */
        put_on_wire(f, 103);
        tick(d);
        if (how) {
            expect_used(d, RX, 0, 100);
            expect_used(d, RX, 1, 101);
        }
        expect_used(d, RX, how ? 2 : 0, 103);
        assert_int_equal(buffer(d, how ? 2 : 0)[0], how ? 2 : 0);
        expect_nothing(d, RX);
        end(d);
    }
}

/* A datagram of 0 bytes is not a frame, and not the end of them. */
static void test_empty_datagrams(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t f[ROOM];
    (void)state;
    give_buffers(d, 0, 8, 1600);
    make_frame(f, 100, 1);
    for (unsigned round = 0; round < 3; round++) {
        put_on_wire(f, 0);
        tick(d);
        put_on_wire(f, 0);
        put_on_wire(f, 100 + round);
        tick(d);
        expect_used(d, RX, round, 100 + round);
    }
    expect_nothing(d, RX);
    end(d);
}

/* A datagram socket at `at` of this host, which gets its port. */
static int udp_at(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t bytes = sizeof *at;
    at->sin_family = AF_INET;
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (const struct sockaddr *)at, sizeof *at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &bytes), 0);
    return fd;
}

/* While the other end is closed, what is sent to it comes back as ECONNREFUSED. */
static void test_other_end_returns(void **state)
{
    struct sockaddr_in far = { 0 }, near = { 0 };
    int ends[2] = { udp_at(&far), udp_at(&near) };
    driver *d;
    uint8_t f[ROOM];
    (void)state;
    assert_int_equal(connect(ends[1], (const struct sockaddr *)&far, sizeof far), 0);
    d = drv_open_at(ends[0], ends[1]);
    drv_start(d, F_USUAL, 64);
    tick(d);
    give_buffers(d, 0, 8, 1600);
    (void)close(wire);
    make_frame(buffer(d, 20), 100, 1);
    submit(d, 20, 100);
    notify(d, TX);
    rc_run(&d->r);
    expect_used(d, TX, 20, 0);
    tick(d); /* reads the error */
    wire = udp_at(&far);
    assert_int_equal(connect(wire, (const struct sockaddr *)&near, sizeof near), 0);
    make_frame(f, 101, 1);
    put_on_wire(f, 101);
    tick(d);
    expect_used(d, RX, 0, 101);
    end(d);
}

/* Frames of this beginning until the socket holds no more; how many. */
static unsigned fill_wire(const uint8_t *f)
{
    unsigned n = 0;
    while (send(wire, f, 60, 0) == 60)
        n++;
    return n;
}

/* A flood takes a bounded time of each tick. */
static void test_flood_from_the_wire(void **state)
{
    driver *d = drv_up(F_FILTERS);
    struct pollfd ready = { virtio_net_kind.descriptor(d->r.dev), POLLIN, 0 };
    uint8_t f[ROOM], off = 0;
    (void)state;
    assert_int_equal(control(d, 0, 0, &off, 1), 0);
    make_frame(f, 60, 0);
    f[HEADER] = 0x04; /* of others: filtered */
    give_buffers(d, 0, 1, 1600);
    assert_true(fill_wire(f) > 256);
    for (unsigned round = 0; round < 20; round++) {
        tick(d);
        assert_int_equal(poll(&ready, 1, 0), 1); /* the rest asks for the next tick at once */
        assert_int_equal(fill_wire(f), 256);
    }
    tick(d);
    expect_nothing(d, RX);
    make_frame(f, 60, 0);
    put_on_wire(f, 60);
    tick(d);
    expect_used(d, RX, 0, 60);
    end(d);
}

/* While there are buffers none of it is lost. */
static void test_flood_is_received(void **state)
{
    driver *d = drv_open();
    uint8_t f[ROOM];
    unsigned sent, got = 0;
    uint32_t head, len;
    (void)state;
    drv_start(d, F_USUAL, 128);
    tick(d);
    make_frame(f, 60, 0);
    sent = fill_wire(f);
    assert_true(sent > 256);
    give_buffers(d, 0, 128, 100);
    for (unsigned round = 0; round < 8; round++) {
        tick(d);
        while (reap(d, RX, &head, &len)) {
            assert_int_equal(len, 60);
            got++;
            give_buffers(d, head, 1, 100);
        }
    }
    assert_int_equal(got, sent);
    end(d);
}

/* ==== 5  Control ============================================================================== */

/* Does a frame with this beginning arrive?  One buffer is used up if so. */
static bool arrives(driver *d, const char *begin, uint32_t bytes)
{
    uint8_t f[ROOM];
    unsigned used = used_index(d, RX);
    make_frame(f, 100, 1);
    memcpy(f + HEADER, begin, bytes);
    put_on_wire(f, 100);
    tick(d);
    return used_index(d, RX) != used;
}

#define ARRIVES(d, begin) arrives(d, begin, sizeof begin - 1)

static const char own[] = "\x02\x11\x22\x33\x44\x55", other[] = "\x02\x11\x22\x33\x44\x56",
                  group[] = "\x01\x00\x5e\x00\x00\x01", all[] = "\xff\xff\xff\xff\xff\xff";

static uint8_t mode(driver *d, unsigned which, uint8_t value)
{
    return control(d, 0, which, &value, 1);
}

static void test_modes(void **state)
{
    driver *d = drv_up(F_FILTERS);
    (void)state;
    give_buffers(d, 0, 60, 1600);
    assert_true(ARRIVES(d, own) && ARRIVES(d, other) && ARRIVES(d, group) && ARRIVES(d, all));
    assert_int_equal(mode(d, 0, 0), 0); /* not promiscuous */
    assert_true(ARRIVES(d, own) && ARRIVES(d, all));
    assert_false(ARRIVES(d, other) || ARRIVES(d, group));
    assert_int_equal(mode(d, 1, 1), 0); /* all multicast */
    assert_true(ARRIVES(d, group) && !ARRIVES(d, other));
    assert_int_equal(mode(d, 2, 1), 0); /* all unicast */
    assert_true(ARRIVES(d, other));
    assert_int_equal(mode(d, 3, 1), 0); /* no multicast */
    assert_true(!ARRIVES(d, group) && ARRIVES(d, all));
    assert_int_equal(mode(d, 4, 1), 0); /* no unicast */
    assert_false(ARRIVES(d, own));
    assert_int_equal(mode(d, 5, 1), 0); /* no broadcast */
    assert_false(ARRIVES(d, all));
    assert_int_equal(mode(d, 6, 1), 1);
    assert_int_equal(mode(d, 0, 2), 1);
    assert_int_equal(control(d, 0, 0, "\1\1", 2), 1);
    assert_int_equal(control(d, 7, 0, "\1", 1), 1);
    end(d);
    d = drv_up(F_USUAL); /* not negotiated */
    assert_int_equal(mode(d, 0, 0), 1);
    assert_int_equal(control(d, 1, 1, other, 6), 1);
    assert_int_equal(control(d, 2, 0, "\5\0", 2), 1);
    assert_int_equal(control(d, 4, 0, "\1\0", 2), 1);
    end(d);
}

static void test_addresses(void **state)
{
    driver *d = drv_up(F_FILTERS);
    uint8_t many[8 + 70 * 6] = { 65 };
    (void)state;
    give_buffers(d, 0, 60, 1600);
    assert_int_equal(mode(d, 0, 0), 0);
    assert_int_equal(control(d, 1, 1, other, 6), 0);
    assert_int_equal(get(d, d->config + 4, 2), 0x5644);
    assert_true(ARRIVES(d, other) && !ARRIVES(d, own));
    assert_int_equal(control(d, 1, 0,
                             "\1\0\0\0\x02\x11\x22\x33\x44\x55"
                             "\1\0\0\0\x01\x00\x5e\x00\x00\x01",
                             20),
                     0);
    assert_true(ARRIVES(d, own) && ARRIVES(d, group) && !ARRIVES(d, "\x01\x00\x5e\x00\x00\x02"));
    assert_int_equal(control(d, 1, 0, "\1\0\0\0\x02\x11\x22\x33\x44\x55\0\0\0", 13), 1);
    assert_int_equal(control(d, 1, 0, "\xff\xff\xff\xff\0\0\0\0", 8), 1);
    assert_int_equal(control(d, 1, 0, "\0\0\0\0\0\0\0\0\0", 9), 1);
    assert_int_equal(control(d, 1, 0, "\0\0\0", 3), 1);
    assert_int_equal(control(d, 1, 1, other, 5), 1);
    assert_true(ARRIVES(d, own)); /* what was refused changed nothing */
    assert_int_equal(control(d, 1, 0, many, 8 + 65 * 6), 0);
    assert_true(ARRIVES(d, "\x06\x11\x22\x33\x44\x59")); /* more than are kept: all pass */
    end(d);
}

static void test_vlans(void **state)
{
    driver *d = drv_up(F_FILTERS);
    static const char tagged[] = "\x02\x11\x22\x33\x44\x55\x02\0\0\0\0\1\x81\0\x60\5";
    (void)state;
    give_buffers(d, 0, 60, 1600);
    assert_int_equal(mode(d, 0, 0), 0);
    assert_true(ARRIVES(d, own) && !ARRIVES(d, tagged));
    assert_int_equal(control(d, 2, 0, "\5\0", 2), 0);
    assert_true(ARRIVES(d, tagged));
    assert_int_equal(control(d, 2, 1, "\5\0", 2), 0);
    assert_false(ARRIVES(d, tagged));
    assert_int_equal(control(d, 2, 0, "\0\x10", 2), 1); /* 4096 */
    assert_int_equal(control(d, 2, 2, "\5\0", 2), 1);
    assert_int_equal(control(d, 2, 0, "\5", 1), 1);
    end(d);
}

/* ==== 6  Hostile drivers ====================================================================== */

static void test_frames_of_impossible_sizes(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t *t = ring_mem(d, TX, 0), got[ROOM];
    (void)state;
    make_frame(buffer(d, 0), 1500, 1);
    put_desc(t, 0, MEM_LOW + AT_DATA, 25, 0, 0); /* too short */
    put_desc(t, 1, MEM_LOW + AT_DATA, 65566, 0, 0);
    put_desc(t, 2, 0x7000000000u, 1500, 0, 0); /* cannot be read */
    put_desc(t, 3, MEM_LOW + AT_DATA, 1500, WRITE, 0);
    put_desc(t, 4, MEM_LOW + AT_DATA, 0, 0, 0);
    put_desc(t, 5, MEM_LOW + AT_DATA, 1500, 0, 0);
    for (uint16_t i = 0; i < 6; i++)
        avail_put(d, TX, i);
    notify(d, TX);
    rc_run(&d->r);
    for (unsigned i = 0; i < 6; i++)
        expect_used(d, TX, i, 0);
    assert_int_equal(recv(wire, got, sizeof got, 0), 1500);
    assert_int_equal(recv(wire, got, sizeof got, 0), -1);
    put_desc(ring_mem(d, RX, 0), 0, MEM_LOW + AT_DATA, 1500, 0, 0); /* nothing can be written */
    avail_put(d, RX, 0);
    notify(d, RX);
    rc_run(&d->r);
    expect_used(d, RX, 0, 0);
    assert_int_equal(status(d), 15);
    put_desc(ring_mem(d, CTRL, 0), 0, MEM_LOW + AT_DATA, 8, 0, 0); /* no place for an answer */
    avail_put(d, CTRL, 0);
    notify(d, CTRL);
    rc_run(&d->r);
    assert_true(status(d) & NEEDS_RESET);
    end(d);
}

/* More to be sent than is read at once: it waits its turn, and none is lost. */
static void test_many_long_frames(void **state)
{
    driver *d = drv_open();
    uint8_t *got = malloc(70000);
    unsigned seen = 0;
    (void)state;
    assert_non_null(got);
    drv_start(d, F_USUAL, 128);
    tick(d);
    fill(d->r.mem + AT_DATA, 65565, 1);
    for (uint16_t i = 0; i < 128; i++) {
        put_desc(ring_mem(d, TX, 0), i, MEM_LOW + AT_DATA, 65565, 0, 0);
        avail_put(d, TX, i);
    }
    notify(d, TX);
    for (unsigned round = 0; round < 2000 && seen < 128; round++) {
        rc_run(&d->r);
        while (recv(wire, got, 70000, 0) == 65565)
            seen++;
        tick(d);
    }
    assert_int_equal(seen, 128);
    free(got);
    end(d);
}

/* Frames that the other end does not take keep no command from being done. */
static void test_commands_pass_frames(void **state)
{
    driver *d = drv_open();
    uint8_t off = 0, f[60] = { 0 };
    (void)state;
    drv_start(d, F_FILTERS, 128);
    tick(d);
    while (send(device_end, f, sizeof f, 0) > 0) /* it holds no more */
        continue;
    for (uint16_t i = 0; i < 128; i++) {
        put_desc(ring_mem(d, TX, 0), i, MEM_LOW + AT_DATA, 32768, 0, 0);
        avail_put(d, TX, i);
    }
    notify(d, TX);
    rc_run(&d->r);
    assert_int_equal(used_index(d, TX), 0);
    assert_int_equal(control(d, 0, 0, &off, 1), 0);
    end(d);
}

/* ==== 7  Resets =============================================================================== */

/* What arrived while no driver ran is not for the one that comes. */
static void test_frames_of_before(void **state)
{
    driver *d = drv_open();
    uint8_t f[ROOM];
    (void)state;
    make_frame(f, 100, 1);
    put_on_wire(f, 100);
    tick(d);
    drv_start(d, F_USUAL, 64);
    give_buffers(d, 0, 4, 1600);
    tick(d);
    put_on_wire(f, 101);
    tick(d);
    expect_used(d, RX, 0, 101);
    put_on_wire(f, 102);
    set_common(d, STATUS, 0, 1);
    put_on_wire(f, 103);
    tick(d);
    drv_start(d, F_USUAL, 64);
    give_buffers(d, 0, 4, 1600);
    tick(d);
    expect_nothing(d, RX);
    put_on_wire(f, 104);
    tick(d);
    expect_used(d, RX, 0, 104);
    end(d);
}

/* A frame that waits for more buffers is not for the driver after it. */
static void test_frame_that_waits_at_a_reset(void **state)
{
    driver *d = drv_up(F_USUAL);
    uint8_t f[6000];
    (void)state;
    make_frame(f, 6000, 1);
    give_buffers(d, 0, 3, 1600);
    put_on_wire(f, 6000);
    tick(d);
    expect_nothing(d, RX);
    drv_start(d, F_USUAL, 64); /* it resets the device first */
    tick(d);
    give_buffers(d, 0, 8, 1600);
    tick(d);
    expect_nothing(d, RX);
    put_on_wire(f, 100);
    tick(d);
    expect_used(d, RX, 0, 100);
    end(d);
}

static void test_reset_in_every_state(void **state)
{
    uint8_t f[6000];
    (void)state;
    make_frame(f, 6000, 1);
    for (reset_kind how = DEVICE_RESET; how < RESETS; how++) {
        for (unsigned answers = 0; answers < 12; answers++) {
            driver *d = drv_up(F_FILTERS | F_RESET);
            give_buffers(d, 0, 4, 1600);
            assert_int_equal(mode(d, 0, 0), 0);
            make_frame(buffer(d, 20), 1500, 1);
            submit(d, 20, 1500);
            submit(d, 20, 1500);
            notify(d, TX);
            put_on_wire(f, 6000);
            d->r.closed = answers & 1; /* the parts of the frame stay on their way */
            virtio_net_kind.tick(d->r.dev, ++now_ns);
            rc_look(&d->r);
            for (unsigned i = 0; i < answers && rc_answer_one(&d->r); i++)
                rc_look(&d->r);
            drv_reset(d, how);
            d->r.closed = false;
            d->r.writes = d->r.reads = 0;
            tick(d);
            assert_int_equal(d->r.writes + d->r.reads, 0);
            drv_start(d, F_FILTERS, 64);
            tick(d);
            give_buffers(d, 0, 8, 1600);
            assert_true(ARRIVES(d, other)); /* promiscuous again */
            end(d);
        }
    }
}

/* A queue alone is reset while a frame is on its way into it. */
static void test_queue_reset(void **state)
{
    driver *d = drv_up(F_USUAL | F_RESET);
    uint8_t f[4000];
    (void)state;
    make_frame(f, 4000, 1);
    give_buffers(d, 0, 4, 1600);
    put_on_wire(f, 4000);
    d->r.closed = true;
    virtio_net_kind.tick(d->r.dev, ++now_ns);
    set_common(d, QUEUE_SELECT, RX, 2);
    set_common(d, QUEUE_RESET, 1, 2);
    d->r.closed = false;
    tick(d);
    make_queue(d, RX, 64);
    give_buffers(d, 0, 4, 1600);
    put_on_wire(f, 100);
    tick(d);
    expect_used(d, RX, 0, 100);
    assert_int_equal(status(d), 15);
    end(d);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity_and_configuration),
        cmocka_unit_test(test_features_that_others_require),
        cmocka_unit_test(test_frames_leave_in_order),
        cmocka_unit_test(test_offloads_are_passed_on),
        cmocka_unit_test(test_frames_wait_for_the_wire),
        cmocka_unit_test(test_frame_is_received),
        cmocka_unit_test(test_no_round_trip_to_receive),
        cmocka_unit_test(test_buffers_are_merged),
        cmocka_unit_test(test_wait_for_buffers_is_bounded),
        cmocka_unit_test(test_too_long_for_its_buffers),
        cmocka_unit_test(test_offloads_that_were_not_negotiated),
        cmocka_unit_test(test_empty_datagrams),
        cmocka_unit_test(test_other_end_returns),
        cmocka_unit_test(test_flood_from_the_wire),
        cmocka_unit_test(test_flood_is_received),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_vlans),
        cmocka_unit_test(test_frames_of_impossible_sizes),
        cmocka_unit_test(test_many_long_frames),
        cmocka_unit_test(test_commands_pass_frames),
        cmocka_unit_test(test_frames_of_before),
        cmocka_unit_test(test_frame_that_waits_at_a_reset),
        cmocka_unit_test(test_reset_in_every_state),
        cmocka_unit_test(test_queue_reset),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
