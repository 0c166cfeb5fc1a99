/* A send queue of AF_XDP whose driver is full: memory for its rings, and a kernel of this file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdlib.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <sys/socket.h>

static ssize_t kernel(void);
/* Not linked: replaces sendto(). */
#define sendto(fd, buf, len, flags, to, to_len) kernel()
#include "dxpu_af_xdp.c"
#undef sendto

#if DXPU_AF_XDP

static struct {
    unsigned calls, taken;
    int error;        /* what each call says, 0: it takes all */
    unsigned refuses; /* the first calls, then it takes all */
} driver;

static struct rings {
    dxpu_xdp x;
    uint32_t tx_prod, tx_cons, done_prod, done_cons, flags;
    struct xdp_desc tx[TX_CHUNKS];
    uint64_t done[TX_CHUNKS];
    uint8_t area[(RX_CHUNKS + 8) * CHUNK];
} r;

/* What was submitted is sent, and its chunk comes back. */
static ssize_t kernel(void)
{
    driver.calls++;
    if (driver.refuses && driver.refuses--) {
        errno = driver.error;
        return -1;
    }
    while (r.tx_cons != r.tx_prod) {
        r.done[r.done_prod++ % TX_CHUNKS] = r.tx[r.tx_cons++ % TX_CHUNKS].addr;
        driver.taken++;
    }
    return 0;
}

static void open_rings(void)
{
    queue *q = &r.x.queues[0];
    memset(&r, 0, sizeof r);
    memset(&driver, 0, sizeof driver);
    r.flags = XDP_RING_NEED_WAKEUP;
    q->area = r.area;
    q->tx = (struct xsk_ring_prod){ .mask = TX_CHUNKS - 1,
                                    .size = TX_CHUNKS,
                                    .cached_cons = TX_CHUNKS,
                                    .producer = &r.tx_prod,
                                    .consumer = &r.tx_cons,
                                    .ring = r.tx,
                                    .flags = &r.flags };
    q->done = (struct xsk_ring_cons){ .mask = TX_CHUNKS - 1,
                                      .size = TX_CHUNKS,
                                      .producer = &r.done_prod,
                                      .consumer = &r.done_cons,
                                      .ring = r.done,
                                      .flags = &r.flags };
    r.x.mtu = 1500;
    r.x.cfg.sockets = r.x.receiver.locals = 1;
    r.x.cfg.fixed_hop = true;
    r.x.cfg.local[0].v4.sin_family = AF_INET;
    r.x.local[0].at = r.x.cfg.local[0];
    for (unsigned i = 0; i < 8; i++)
        r.x.tx_free[r.x.tx_free_count++] = (uint64_t)(RX_CHUNKS + i) * CHUNK;
}

static void send_some(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint8_t *room = dxpu_xdp_room(&r.x);
        assert_non_null(room);
        memset(room, 7, 64);
        assert_true(dxpu_xdp_commit(&r.x, 0, &r.x.cfg.local[0], 64));
    }
    dxpu_xdp_flush(&r.x);
}

/* The queue of the device is full for longer than a flush tries: what waits goes with a later
   flush, and needs nothing new to be sent. */
static void test_full_driver(void **state)
{
    (void)state;
    open_rings();
    driver.error = EAGAIN;
    driver.refuses = KICKS + 3;
    send_some(3);
    assert_true(dxpu_xdp_waits(&r.x));
    assert_int_equal(driver.calls, KICKS);
    assert_int_equal(driver.taken, 0);
    assert_int_equal(r.x.count.tx_left, 1);
    assert_int_equal(r.x.count.tx_batches, 1);
    dxpu_xdp_flush(&r.x);
    assert_int_equal(driver.taken, 3);
    assert_int_equal(driver.calls, KICKS + 4);
    assert_false(dxpu_xdp_waits(&r.x));
    assert_int_equal(r.x.tx_free_count, 8); /* all chunks are back */
    dxpu_xdp_flush(&r.x);
    assert_int_equal(driver.calls, KICKS + 4); /* there is nothing left to hand over */
    assert_int_equal(r.x.count.tx_left, 1);
    assert_int_equal(r.x.count.tx_batches, 1);
    assert_int_equal(r.x.count.tx_errors, 0);
}

static void test_driver_that_takes_all(void **state)
{
    (void)state;
    open_rings();
    send_some(3);
    assert_int_equal(driver.calls, 1);
    assert_int_equal(driver.taken, 3);
    assert_false(dxpu_xdp_waits(&r.x));
    r.flags = 0; /* the driver is at work, and needs no call */
    send_some(2);
    assert_int_equal(driver.calls, 1);
    assert_false(dxpu_xdp_waits(&r.x));
    assert_int_equal(r.x.count.tx_left, 0);
}

/* An interface that is down takes nothing, however often it is asked. */
static void test_driver_that_fails(void **state)
{
    (void)state;
    open_rings();
    driver.error = ENETDOWN;
    driver.refuses = 1000;
    send_some(1);
    assert_int_equal(driver.calls, 1);
    assert_false(dxpu_xdp_waits(&r.x));
    assert_int_equal(r.x.count.tx_errors, 1);
    driver.refuses = 0; /* it is up again */
    send_some(1);
    assert_int_equal(driver.taken, 2);
}

#else

static ssize_t kernel(void)
{
    return -1;
}

static void no_library(void **state)
{
    (void)state;
    (void)kernel;
    print_message("built without libxdp\n");
    skip();
}
#define test_full_driver           no_library
#define test_driver_that_takes_all no_library
#define test_driver_that_fails     no_library

#endif

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_full_driver),
                                        cmocka_unit_test(test_driver_that_takes_all),
                                        cmocka_unit_test(test_driver_that_fails) };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
