/* api_virtio_gpu_3d.c - 3D of the virtio display adapter, under a driver that knows only the
   standard, in front of a renderer that the test plays, and of dxpu-render
   SPDX-License-Identifier: MIT

   What needs dxpu-render is skipped where that cannot render; it says why.

   CONTENTS   1 A renderer   2 Driver   3 Commands   4 Transfers   5 Results and fences
              6 Ends and resets   7 Limits   8 Random   9 dxpu-render */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dxpu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fd_message.h"
#include "launcher.h"
#include "render_program.h"
#include "render_wire.h"
#include "report_value.h"
#include "virgl_stream.h"
#include "virtio_gpu.h"

#include "virtio_gpu_driver.h"

/* ==== 1  A renderer =========================================================================== */

enum { CAPS_2_BYTES = 1376 };
#define MS ((uint64_t)1000000)

typedef struct fake {
    driver *d;
    uint64_t now_ns;
    int launcher, socket;
    uint8_t *shared;
    uint8_t request[RENDER_REQUEST_BYTES];
    unsigned ended; /* renderers that are to be ended without another */
} fake;

static void tick(fake *f, uint64_t ms)
{
    f->now_ns += ms * MS;
    f->d->r.kind->tick(f->d->r.dev, f->now_ns);
    rc_run(&f->d->r);
}

/* The device has asked for a renderer, once; the one before may be ended. */
static bool is_asked(fake *f)
{
    unsigned char what;
    while (recv(f->launcher, &what, 1, MSG_DONTWAIT) == 1) {
        if (what == LAUNCHER_START)
            return true;
        assert_int_equal(what, LAUNCHER_END);
        f->ended++;
    }
    return false;
}

static void reply(fake *f, unsigned count, const uint32_t *words)
{
    uint8_t m[RENDER_REPLY_BYTES] = { 0 };
    for (unsigned i = 0; i < count; i++)
        render_put(m, i, words[i]);
    assert_int_equal(send(f->socket, m, sizeof m, 0), sizeof m);
}

/* The renderer is there, and has not said READY. */
static void hand_over(fake *f)
{
    int pair[2], fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    fds[0] = pair[0];
    fds[1] = memfd_create("test", 0);
    assert_int_equal(ftruncate(fds[1], RENDER_MEMORY_BYTES), 0);
    f->shared = mmap(NULL, RENDER_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    assert_ptr_not_equal(f->shared, MAP_FAILED);
    assert_int_equal(fd_message_send(f->launcher, 0, fds, 2), 0);
    (void)close(fds[0]);
    (void)close(fds[1]);
    f->socket = pair[1];
}

static void give(fake *f)
{
    assert_true(is_asked(f));
    hand_over(f);
}

static void ready(fake *f)
{
    memset(f->shared, 0xff, 308);
    memset(f->shared + RENDER_SLOT_BYTES, 0xff, CAPS_2_BYTES);
    reply(f, WORDS(RENDER_READY, RENDER_VERSION, 1, 308, 2, CAPS_2_BYTES));
    tick(f, 1);
}

static void take_away(fake *f)
{
    (void)close(f->socket);
    (void)munmap(f->shared, RENDER_MEMORY_BYTES);
}

/* The next request is this one. */
static void expect(fake *f, uint32_t op, uint32_t context, uint32_t resource)
{
    assert_int_equal(recv(f->socket, f->request, sizeof f->request, MSG_DONTWAIT),
                     RENDER_REQUEST_BYTES);
    assert_int_equal(render_word(f->request, RENDER_OP), op);
    assert_int_equal(render_word(f->request, RENDER_CONTEXT), context);
    assert_int_equal(render_word(f->request, RENDER_RESOURCE), resource);
    assert_true(render_request_fits(f->request, sizeof f->request));
}

static void expect_no_request(fake *f)
{
    assert_int_equal(recv(f->socket, f->request, sizeof f->request, MSG_DONTWAIT), -1);
}

static uint32_t number(const fake *f)
{
    return render_word(f->request, RENDER_NUMBER);
}

static uint8_t *its_slot(const fake *f)
{
    return f->shared + (size_t)render_word(f->request, RENDER_SLOT) * RENDER_SLOT_BYTES;
}

static void answer(fake *f, uint32_t status)
{
    reply(f, WORDS(RENDER_DONE, number(f), status));
    tick(f, 1);
}

/* ==== 2  Driver =============================================================================== */

enum {
    GET_CAPSET_INFO = 0x108,
    GET_CAPSET = 0x109,
    CTX_DESTROY = 0x201,
    CTX_ATTACH = 0x202,
    CREATE_3D = 0x204,
    TO_HOST_3D = 0x205,
    FROM_HOST_3D = 0x206,
    SUBMIT_3D = 0x207,
    OK_CAPSET_INFO = 0x1102,
    OK_CAPSET = 0x1103,
    BAD_CONTEXT = 0x1204,
    FENCE = 1,
    ROOM = 4096
};
#define F_VIRGL 1ull

static void open_with(fake *f, int launcher)
{
    device_settings s = { .mps_bytes = 256, .identity = 0x77, .renderer = launcher };
    f->now_ns = 1000 * MS;
    f->d = drv_create(&virtio_gpu_kind, &s, QUEUES);
    tick(f, 0); /* it knows the time before it asks for anything */
    drv_start(f->d, F_USUAL | F_VIRGL, 64);
}

static void open_fake(fake *f)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    f->launcher = pair[1];
    f->ended = 0;
    open_with(f, pair[0]);
}

static void open_ready(fake *f)
{
    open_fake(f);
    give(f);
    ready(f);
}

static void close_fake(fake *f)
{
    drv_close(f->d);
    take_away(f);
    (void)close(f->launcher);
}

/* A command of a context, with a fence of its place's number. */
static uint32_t put_3d(driver *d, unsigned head, uint32_t type, uint32_t context, unsigned count,
                       const uint32_t *words)
{
    uint32_t bytes = put_command(d, head, type, count, words);
    dxpu_put_le32(command_of(d, head) + 4, FENCE);
    dxpu_put_le64(command_of(d, head) + 8, 1000 + head);
    dxpu_put_le32(command_of(d, head) + 16, context);
    return type == CTX_CREATE ? 96 : bytes;
}

static void start(fake *f, unsigned head, uint32_t type, uint32_t context, uint32_t extra,
                  unsigned count, const uint32_t *words)
{
    driver *d = f->d;
    submit(d, CONTROL, head, put_3d(d, head, type, context, count, words), extra, 1024);
    notify(d, CONTROL);
    rc_run(&d->r);
}

/* The next command that is done: its place; its reply has its fence. */
static unsigned next(fake *f, uint32_t want)
{
    uint32_t head = 0, len;
    assert_true(reap(f->d, CONTROL, &head, &len));
    assert_int_equal(dxpu_get_le32(reply_of(f->d, head)), want);
    assert_int_equal(dxpu_get_le32(reply_of(f->d, head) + 4), FENCE);
    assert_int_equal(dxpu_get_le64(reply_of(f->d, head) + 8), 1000 + head);
    return head;
}

static void expect_none(fake *f)
{
    assert_int_equal(used_index(f->d, CONTROL), f->d->q[CONTROL].seen);
}

/* One that the renderer is asked for, and does. */
static void have(fake *f, uint32_t type, uint32_t op, uint32_t context, uint32_t resource,
                 unsigned count, const uint32_t *words)
{
    start(f, 0, type, context, 0, count, words);
    expect(f, op, context, resource);
    expect_none(f);
    answer(f, 0);
    assert_int_equal(next(f, OK), 0);
}

/* One that is refused without the renderer. */
static void refuse(fake *f, uint32_t want, uint32_t type, uint32_t context, unsigned count,
                   const uint32_t *words)
{
    start(f, 0, type, context, 0, count, words);
    assert_int_equal(next(f, want), 0);
    expect_no_request(f);
}

static void have_context(fake *f, uint32_t id)
{
    have(f, CTX_CREATE, RENDER_CONTEXT_CREATE, id, 0, WORDS(0, 0));
}

static void have_texture(fake *f, uint32_t id, uint32_t width, uint32_t height)
{
    have(f, CREATE_3D, RENDER_RESOURCE_CREATE, 0, id,
         WORDS(id, VS_TEXTURE_2D, BGRA, 2 | 8, width, height, 1, 1, 0, 0, 0, 0));
}

static void have_buffer(fake *f, uint32_t id, uint32_t bind, uint32_t bytes)
{
    have(f, CREATE_3D, RENDER_RESOURCE_CREATE, 0, id,
         WORDS(id, 0, VS_R8, bind, bytes, 1, 1, 1, 0, 0, 0, 0));
}

static void start_move(fake *f, unsigned head, uint32_t type, uint32_t id, const uint32_t box[6],
                       uint64_t offset, uint32_t stride)
{
    start(f, head, type, 1, 0,
          WORDS(box[0], box[1], box[2], box[3], box[4], box[5], (uint32_t)offset,
                (uint32_t)(offset >> 32), id, 0, stride, 0));
}

static void start_stream(fake *f, unsigned head, uint32_t context, unsigned words,
                         const uint32_t *word)
{
    uint8_t *to = f->d->r.mem + AT_LIST;
    for (unsigned i = 0; i < words; i++)
        dxpu_put_le32(to + (size_t)i * 4, word[i]);
    start(f, head, SUBMIT_3D, context, words * 4, WORDS(words * 4, 0));
}

/* M-155: what draws for it: the last part of the node's name. */
static void test_attributes(void **state)
{
    static const struct {
        bool renderer;
        const char *node, *want;
    } rows[] = { { false, NULL, "render=none" },
                 { false, "/dev/dri/renderD128", "render=none" },
                 { true, NULL, "render=software" },
                 { true, "/dev/dri/renderD128", "render=renderD128" },
                 { true, "card0", "render=card0" } };
    const device_port port = { 0 };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char said[DEVICE_ATTRIBUTES_BYTES];
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        device_settings s = { .mps_bytes = 256,
                              .renderer = rows[i].renderer ? pair[0] : 0,
                              .render_node = rows[i].node };
        void *device = virtio_gpu_kind.create(&s, &port);
        assert_non_null(device);
        virtio_gpu_kind.attributes(device, said);
        assert_string_equal(said, rows[i].want);
        virtio_gpu_kind.destroy(device);
        (void)close(pair[1]);
        if (!rows[i].renderer)
            (void)close(pair[0]);
    }
}

/* ==== 3  Commands ============================================================================= */

static void test_features_need_a_renderer(void **state)
{
    driver *d = drv_open();
    fake f;
    (void)state;
    assert_int_equal(offered(d) & 0x1f, F_EDID);
    assert_int_equal(get(d, d->config + 12, 4), 0);
    drv_close(d);
    open_fake(&f);
    assert_int_equal(offered(f.d) & 0x1f, F_EDID | F_VIRGL); /* no blobs, UUIDs, context types */
    assert_int_equal(get(f.d, f.d->config + 12, 4), 2);
    give(&f);
    close_fake(&f);
}

/* No descriptor for its renderer: no device, and what starts renderers is not kept. */
static void test_not_opened(void **state)
{
    const device_port port = { .user = NULL };
    device_settings s = { .mps_bytes = 256 };
    struct rlimit all, none;
    int pair[2];
    void *device;
    char any;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    none = all;
    none.rlim_cur = 0;
    s.renderer = pair[0];
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    device = virtio_gpu_kind.create(&s, &port);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    assert_null(device);
    assert_int_equal(recv(pair[1], &any, 1, MSG_DONTWAIT), 0);
    (void)close(pair[1]);
}

/* Without the feature they are not there. */
static void test_commands_need_the_feature(void **state)
{
    fake f;
    (void)state;
    open_ready(&f);
    drv_reset(f.d, DEVICE_RESET);
    drv_start(f.d, F_USUAL, 64);
    refuse(&f, UNSPEC, CTX_CREATE, 1, WORDS(0, 0));
    refuse(&f, UNSPEC, GET_CAPSET_INFO, 0, WORDS(0, 0));
    close_fake(&f);
}

static void test_capability_sets_wait_and_are_masked(void **state)
{
    const uint8_t *caps;
    fake f;
    (void)state;
    open_fake(&f);
    start(&f, 0, GET_CAPSET_INFO, 0, 0, WORDS(1, 0));
    expect_none(&f);
    give(&f);
    ready(&f);
    assert_int_equal(next(&f, OK_CAPSET_INFO), 0);
    assert_int_equal(dxpu_get_le32(reply_of(f.d, 0) + 24), 2);
    assert_int_equal(dxpu_get_le32(reply_of(f.d, 0) + 28), 2);
    assert_int_equal(dxpu_get_le32(reply_of(f.d, 0) + 32), CAPS_2_BYTES);
    assert_int_equal(done(f.d, CONTROL, put_command(f.d, 0, GET_CAPSET, WORDS(2, 2)), 0, ROOM),
                     OK_CAPSET);
    caps = reply_of(f.d, 0) + 24;
    assert_int_equal(dxpu_get_le32(caps + 388), 0xffffffff);
    assert_int_equal(dxpu_get_le32(caps + 392), 0xffffffff & ~0x84020000u);
    assert_int_equal(dxpu_get_le32(caps + 688), 0xffffffff & ~0x88u);
    assert_int_equal(caps[CAPS_2_BYTES - 1], 0xff);
    assert_int_equal(caps[CAPS_2_BYTES], 0);
    refuse(&f, BAD_PARAMETER, GET_CAPSET_INFO, 0, WORDS(2, 0));
    refuse(&f, BAD_PARAMETER, GET_CAPSET, 0, WORDS(0, 0));
    refuse(&f, BAD_PARAMETER, GET_CAPSET, 0, WORDS(3, 0));
    close_fake(&f);
}

static void test_contexts_and_resources(void **state)
{
    fake f;
    (void)state;
    open_ready(&f);
    refuse(&f, BAD_CONTEXT, CTX_CREATE, 0, WORDS(0, 0));
    have_context(&f, 7);
    refuse(&f, BAD_CONTEXT, CTX_CREATE, 7, WORDS(0, 0));
    have(&f, CREATE_3D, RENDER_RESOURCE_CREATE, 0, 3,
         WORDS(3, 2, BGRA, 10, 64, 32, 1, 1, 0, 0, 1, 0));
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(render_word(f.request, RENDER_ARGUMENTS + i),
                         ((const uint32_t[]){ 2, BGRA, 10, 64, 32, 1, 1, 0, 0, 1 })[i]);
    refuse(&f, BAD_RESOURCE, CREATE_3D, 0, WORDS(3, 2, BGRA, 10, 64, 32, 1, 1, 0, 0, 0, 0));
    refuse(&f, BAD_RESOURCE, TRANSFER, 0, WORDS(0, 0, 4, 4, 0, 0, 3, 0));
    refuse(&f, BAD_CONTEXT, CTX_ATTACH, 8, WORDS(3, 0));
    refuse(&f, BAD_RESOURCE, CTX_ATTACH, 7, WORDS(4, 0));
    have(&f, CTX_ATTACH, RENDER_ATTACH, 7, 3, WORDS(3, 0));
    assert_int_equal(create(f.d, 4, BGRA, 8, 8), OK); /* 2D: attached, and the renderer's not */
    refuse(&f, OK, CTX_ATTACH, 7, WORDS(4, 0));
    have(&f, UNREF, RENDER_RESOURCE_DESTROY, 0, 3, WORDS(3, 0));
    refuse(&f, BAD_RESOURCE, UNREF, 0, WORDS(3, 0));
    have(&f, CTX_DESTROY, RENDER_CONTEXT_DESTROY, 7, 0, 0, NULL);
    refuse(&f, BAD_CONTEXT, SUBMIT_3D, 7, WORDS(4, 0));
    close_fake(&f);
}

/* What the renderer refuses is not there. */
static void test_refused_by_the_renderer(void **state)
{
    fake f;
    (void)state;
    open_ready(&f);
    start(&f, 0, CTX_CREATE, 1, 0, WORDS(0, 0));
    expect(&f, RENDER_CONTEXT_CREATE, 1, 0);
    answer(&f, 1);
    assert_int_equal(next(&f, UNSPEC), 0);
    have_context(&f, 1);
    start(&f, 0, CREATE_3D, 0, 0, WORDS(3, 2, BGRA, 10, 64, 32, 1, 1, 0, 0, 0, 0));
    expect(&f, RENDER_RESOURCE_CREATE, 0, 3);
    answer(&f, 1);
    assert_int_equal(next(&f, UNSPEC), 0);
    have_texture(&f, 3, 64, 32);
    close_fake(&f);
}

static void test_streams_are_parsed(void **state)
{
    static const uint32_t bad[] = { 43, 44, 45, 48, 49, 50, 53, 60, 255, 7 | 2u << 16 };
    static const uint32_t good[] = { 0, 42, 46, 47, 51, 52 };
    fake f;
    (void)state;
    open_ready(&f);
    have_context(&f, 1);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        start_stream(&f, 0, 1, WORDS(7u | 1u << 16, 43, bad[i]));
        start_stream(&f, 1, 1, WORDS(bad[i], 0));
        assert_int_equal(next(&f, BAD_PARAMETER), 0);
        assert_int_equal(next(&f, BAD_PARAMETER), 1);
        expect_no_request(&f);
    }
    for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++) {
        start_stream(&f, 0, 1, WORDS(good[i] | 1u << 16, 43, good[i]));
        expect(&f, RENDER_SUBMIT, 1, 0);
        assert_int_equal(render_word(f.request, RENDER_BYTES), 12);
        assert_int_equal(render_word(f.request, RENDER_FLAGS), RENDER_FENCE);
        assert_int_equal(dxpu_get_le32(its_slot(&f) + 4), 43);
        answer(&f, 0);
        assert_int_equal(next(&f, OK), 0);
    }
    refuse(&f, OK, SUBMIT_3D, 1, WORDS(0, 0)); /* a fence alone */
    refuse(&f, BAD_PARAMETER, SUBMIT_3D, 1, WORDS(6, 0));
    refuse(&f, BAD_PARAMETER, SUBMIT_3D, 1, WORDS(4, 0)); /* more than there is */
    refuse(&f, BAD_PARAMETER, SUBMIT_3D, 1, WORDS(RENDER_SLOT_BYTES + 4, 0));
    close_fake(&f);
}

/* ==== 4  Transfers ============================================================================ */

/* A texture of 64 x 32 pixels in pieces of the driver's memory, 4,000 bytes each, 8,192 apart. */
static void make_texture(fake *f)
{
    have_context(f, 1);
    have_texture(f, 3, 64, 32);
    for (unsigned i = 0; i < 3; i++)
        put_entry(f->d, i, MEM_LOW + AT_DATA + i * 8192u, 4000);
    assert_int_equal(attach(f->d, 3, 3), OK);
}

static uint8_t *backing(fake *f, uint32_t at)
{
    return f->d->r.mem + AT_DATA + at / 4000 * 8192 + at % 4000;
}

static void test_rows_to_the_renderer(void **state)
{
    static const uint32_t box[6] = { 8, 4, 0, 16, 10, 1 };
    fake f;
    (void)state;
    open_ready(&f);
    make_texture(&f);
    for (uint32_t i = 0; i < 64 * 32 * 4; i++)
        *backing(&f, i) = (uint8_t)(i * 7 + (i >> 8));
    start_move(&f, 0, TO_HOST_3D, 3, box, (4 * 64 + 8) * 4, 0);
    expect(&f, RENDER_WRITE, 1, 3);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(render_word(f.request, RENDER_BYTES + i),
                         ((const uint32_t[]){ 16 * 4 * 10, 0, 8, 4, 0, 16, 10, 1, 64, 640 })[i]);
    for (uint32_t row = 0; row < 10; row++) {
        for (uint32_t i = 0; i < 64; i++)
            assert_int_equal(its_slot(&f)[row * 64 + i],
                             *backing(&f, ((4 + row) * 64 + 8) * 4 + i));
    }
    expect_none(&f);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 0);
    close_fake(&f);
}

/* Only the rows of the box are written. */
static void test_rows_to_the_driver(void **state)
{
    static const uint32_t box[6] = { 8, 4, 0, 16, 10, 1 };
    fake f;
    (void)state;
    open_ready(&f);
    make_texture(&f);
    memset(f.d->r.mem + AT_DATA, 0x55, 3 * 8192);
    start_move(&f, 0, FROM_HOST_3D, 3, box, (4 * 64 + 8) * 4, 0);
    expect(&f, RENDER_READ, 1, 3);
    for (uint32_t i = 0; i < 640; i++)
        its_slot(&f)[i] = (uint8_t)(i % 64 + 1);
    expect_none(&f);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 0);
    for (uint32_t y = 0; y < 32; y++) {
        for (uint32_t i = 0; i < 256; i++) {
            bool inside = y >= 4 && y < 14 && i >= 32 && i < 96;
            if (y * 256 + i < 12000)
                assert_int_equal(*backing(&f, y * 256 + i), inside ? i - 32 + 1 : 0x55);
        }
    }
    close_fake(&f);
}

/* Writes for 10 rows of 64 bytes, by the stride of the driver's memory, and for their answer. */
static unsigned writes_for_rows(fake *f, uint32_t stride)
{
    static const uint32_t box[6] = { 0, 0, 0, 16, 10, 1 };
    unsigned before;
    memset(f->d->r.mem + AT_DATA, 0x55, 3 * 8192);
    start_move(f, 0, FROM_HOST_3D, 3, box, 0, stride);
    expect(f, RENDER_READ, 1, 3);
    for (uint32_t i = 0; i < 640; i++)
        its_slot(f)[i] = (uint8_t)(i % 251);
    before = f->d->r.writes;
    answer(f, 0);
    assert_int_equal(next(f, OK), 0);
    for (uint32_t i = 0; i < 640; i++)
        assert_int_equal(*backing(f, i / 64 * stride + i % 64), i % 251);
    assert_int_equal(*backing(f, 9 * stride + 64), 0x55);
    return f->d->r.writes - before;
}

/* Rows that follow one another share writes. */
static void test_rows_without_gaps(void **state)
{
    unsigned apart;
    fake f;
    (void)state;
    open_ready(&f);
    make_texture(&f);
    apart = writes_for_rows(&f, 256);
    assert_int_equal(writes_for_rows(&f, 64), apart - 10 + 640 / 128);
    close_fake(&f);
}

/* Beyond a slot it goes in pieces, all of them before the answer. */
static void test_large_buffer(void **state)
{
    enum { BYTES = 5 << 19 }; /* two slots and a half */
    static const uint32_t box[6] = { 0, 0, 0, BYTES, 1, 1 };
    uint32_t at = 0;
    fake f;
    (void)state;
    open_ready(&f);
    have_context(&f, 1);
    have_buffer(&f, 3, VS_VERTEX_BUFFER, BYTES);
    assert_int_equal(attach_one(f.d, 3, MEM_LOW + AT_DATA, BYTES), OK);
    fill(f.d->r.mem + AT_DATA, BYTES, 3);
    start_move(&f, 0, TO_HOST_3D, 3, box, 0, 0);
    for (unsigned i = 0; i < 3; i++) {
        uint32_t bytes = i < 2 ? RENDER_SLOT_BYTES : BYTES - 2 * RENDER_SLOT_BYTES;
        expect(&f, RENDER_WRITE, 1, 3);
        assert_int_equal(render_word(f.request, RENDER_BYTES), bytes);
        assert_int_equal(render_word(f.request, RENDER_BOX), at);
        assert_int_equal(render_word(f.request, RENDER_BOX + 3), bytes);
        assert_memory_equal(its_slot(&f), f.d->r.mem + AT_DATA + at, bytes);
        at += bytes;
        expect_none(&f);
        answer(&f, 0);
    }
    assert_int_equal(next(&f, OK), 0);
    close_fake(&f);
}

static void test_boxes_are_checked(void **state)
{
    static const uint32_t bad[][6] = {
        { 60, 0, 0, 5, 1, 1 }, { 0, 30, 0, 4, 3, 1 },           { 0, 0, 1, 4, 4, 1 },
        { 0, 0, 0, 4, 4, 2 },  { 0xfffffff0u, 0, 0, 32, 1, 1 }, { 0, 0, 0, 64, 0xffffffffu, 1 },
    };
    static const uint32_t all[6] = { 0, 0, 0, 64, 32, 1 }, small[6] = { 0, 0, 0, 4, 4, 1 };
    fake f;
    (void)state;
    open_ready(&f);
    make_texture(&f);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        start_move(&f, 0, TO_HOST_3D, 3, bad[i], 0, 0);
        assert_int_equal(next(&f, BAD_PARAMETER), 0);
    }
    start_move(&f, 0, TO_HOST_3D, 3, all, 12000 - 64 * 32 * 4 + 1, 0);
    assert_int_equal(next(&f, BAD_PARAMETER), 0);
    start_move(&f, 0, FROM_HOST_3D, 3, small, UINT64_MAX - 7, 0);
    assert_int_equal(next(&f, BAD_PARAMETER), 0);
    start_move(&f, 0, FROM_HOST_3D, 3, small, 0, 8); /* rows over one another */
    assert_int_equal(next(&f, BAD_PARAMETER), 0);
    start_move(&f, 0, FROM_HOST_3D, 4, small, 0, 0);
    assert_int_equal(next(&f, BAD_RESOURCE), 0);
    expect_no_request(&f);
    close_fake(&f);
}

/* The scanout shows what the renderer has at the time of a flush. */
static void test_picture(void **state)
{
    fake f;
    (void)state;
    open_ready(&f);
    have_texture(&f, 3, 64, 32);
    assert_int_equal(scanout(f.d, 3, 0, 0, 64, 32), OK);
    expect_pixel(f.d, 9, 9, 0);
    start(&f, 0, FLUSH, 0, 0, WORDS(8, 8, 4, 4, 3, 0));
    expect(&f, RENDER_READ, 0, 3);
    memset(its_slot(&f), 0x40, 64);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 0);
    expect_pixel(f.d, 9, 9, 0x404040);
    expect_pixel(f.d, 12, 9, 0);
    close_fake(&f);
}

/* ==== 5  Results and fences =================================================================== */

/* A command that is done waits for those before it: its fence says that they are done. */
static void test_fences_in_order(void **state)
{
    uint32_t first;
    fake f;
    (void)state;
    open_ready(&f);
    have_context(&f, 1);
    start_stream(&f, 0, 1, WORDS(0, 0));
    expect(&f, RENDER_SUBMIT, 1, 0);
    first = number(&f);
    start_stream(&f, 4, 1, WORDS(0, 0));
    expect(&f, RENDER_SUBMIT, 1, 0);
    start(&f, 8, GET_CAPSET_INFO, 0, 0, WORDS(0, 0));
    answer(&f, 0);
    expect_none(&f);
    reply(&f, WORDS(RENDER_DONE, first, 0));
    tick(&f, 1);
    assert_int_equal(next(&f, OK), 0);
    assert_int_equal(next(&f, OK), 4);
    assert_int_equal(next(&f, OK_CAPSET_INFO), 8);
    close_fake(&f);
}

/* An answer of two parts is not overtaken between them. */
static void test_capability_set_in_order(void **state)
{
    fake f;
    (void)state;
    open_ready(&f);
    have_context(&f, 1);
    start_stream(&f, 0, 1, WORDS(0, 0));
    expect(&f, RENDER_SUBMIT, 1, 0);
    start(&f, 4, GET_CAPSET, 0, 0, WORDS(2, 2));
    start(&f, 8, GET_CAPSET_INFO, 0, 0, WORDS(0, 0));
    expect_none(&f);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 0);
    assert_int_equal(next(&f, OK_CAPSET), 4);
    assert_int_equal(next(&f, OK_CAPSET_INFO), 8);
    close_fake(&f);
}

/* A result is in the driver's memory before the command is done; nothing else is written. */
static void test_results(void **state)
{
    fake f;
    uint8_t *at;
    (void)state;
    open_ready(&f);
    at = f.d->r.mem + AT_DATA;
    have_context(&f, 1);
    have_buffer(&f, 3, VS_CUSTOM, 16);
    have_buffer(&f, 4, VS_VERTEX_BUFFER, 16);
    have_buffer(&f, 5, VS_CUSTOM, 16); /* without memory */
    assert_int_equal(attach_one(f.d, 3, MEM_LOW + AT_DATA, 4096), OK);
    assert_int_equal(attach_one(f.d, 4, MEM_LOW + AT_DATA + 4096, 4096), OK);
    memset(at, 0x55, 8192);
    start_stream(&f, 0, 1, WORDS(0, 0));
    expect(&f, RENDER_SUBMIT, 1, 0);
    for (uint32_t id = 3; id < 7; id++)
        reply(&f, WORDS(RENDER_RESULT, id, 1, 4, 77, 0));
    tick(&f, 1);
    expect_none(&f);
    assert_int_equal(dxpu_get_le32(at), 1);
    assert_int_equal(dxpu_get_le32(at + 4), 4);
    assert_int_equal(dxpu_get_le64(at + 8), 77);
    for (unsigned i = 16; i < 8192; i++)
        assert_int_equal(at[i], 0x55);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 0);
    close_fake(&f);
}

static unsigned many(void *user)
{
    (void)user;
    return 1000;
}

/* Any number of them while nothing can be sent: none is sent, then the last one, and then the
   answer. */
static void test_s244_results_wait_for_room(void **state)
{
    fake f;
    uint32_t stream;
    uint8_t *at;
    (void)state;
    open_ready(&f);
    at = f.d->r.mem + AT_DATA;
    have_context(&f, 1);
    for (uint32_t id = 3; id < 6; id++) {
        have_buffer(&f, id, VS_CUSTOM, 16);
        assert_int_equal(attach_one(f.d, id, MEM_LOW + AT_DATA + id * 64, 64), OK);
    }
    memset(at, 0x55, 1024);
    start_stream(&f, 0, 1, WORDS(0, 0));
    expect(&f, RENDER_SUBMIT, 1, 0);
    stream = number(&f);
    start(&f, 4, UNREF, 0, 0, WORDS(4, 0));
    expect(&f, RENDER_RESOURCE_DESTROY, 0, 4);
    f.d->r.port.waiting = many;
    for (uint32_t i = 0; i < 300; i++) {
        reply(&f, WORDS(RENDER_RESULT, 3 + i % 3, 1, 4, i, 0));
        if (i % 30 == 29)
            tick(&f, 1);
    }
    reply(&f, WORDS(RENDER_DONE, stream, 0));
    tick(&f, 1);
    for (unsigned i = 0; i < 1024; i++)
        assert_int_equal(at[i], 0x55);
    expect_none(&f);
    f.d->r.port.waiting = NULL;
    tick(&f, 1);
    assert_int_equal(dxpu_get_le64(at + 3 * 64 + 8), 297);
    assert_int_equal(dxpu_get_le64(at + 5 * 64 + 8), 299);
    assert_int_equal(at[4 * 64], 0x55); /* it is gone */
    assert_int_equal(next(&f, OK), 0);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 4);
    close_fake(&f);
}

/* ==== 6  Ends and resets ====================================================================== */

/* Commands on their way fail with their fences, 2D goes on, and another renderer serves what is
   made then. */
static void test_s246_renderer_ends(void **state)
{
    static const uint32_t box[6] = { 0, 0, 0, 4, 4, 1 };
    fake f;
    (void)state;
    open_ready(&f);
    make_texture(&f);
    start_stream(&f, 0, 1, WORDS(0, 0));
    start_stream(&f, 4, 1, WORDS(0, 0));
    start_move(&f, 8, FROM_HOST_3D, 3, box, 0, 0);
    expect_none(&f);
    take_away(&f);
    tick(&f, 1);
    assert_int_equal(next(&f, UNSPEC), 0);
    assert_int_equal(next(&f, UNSPEC), 4);
    assert_int_equal(next(&f, UNSPEC), 8);
    assert_int_equal(create(f.d, 20, BGRA, 8, 8), OK);
    assert_false(is_asked(&f));
    start(&f, 0, CTX_CREATE, 2, 0, WORDS(0, 0)); /* waits for the next one */
    tick(&f, 100);
    expect_none(&f);
    give(&f);
    ready(&f);
    expect(&f, RENDER_CONTEXT_CREATE, 2, 0);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 0);
    refuse(&f, UNSPEC, SUBMIT_3D, 1, WORDS(4, 0));
    start_move(&f, 0, TO_HOST_3D, 3, box, 0, 0);
    assert_int_equal(next(&f, UNSPEC), 0);
    refuse(&f, UNSPEC, CTX_ATTACH, 2, WORDS(3, 0));
    refuse(&f, OK, UNREF, 0, WORDS(3, 0));
    refuse(&f, OK, CTX_DESTROY, 1, 0, NULL);
    have_texture(&f, 3, 8, 8);
    close_fake(&f);
}

/* In every state of a command. */
static void test_s246_renderer_ends_anywhere(void **state)
{
    static const uint32_t box[6] = { 0, 0, 0, 64, 32, 1 };
    (void)state;
    for (unsigned step = 0; step < 6; step++) {
        fake f;
        open_ready(&f);
        make_texture(&f);
        f.d->r.hold = step < 2; /* the driver's memory is on its way to a slot */
        if (step == 0 || step == 2)
            start_move(&f, 0, TO_HOST_3D, 3, box, 0, 0);
        else if (step == 1)
            start_stream(&f, 0, 1, WORDS(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        else if (step == 3)
            start_move(&f, 0, FROM_HOST_3D, 3, box, 0, 0);
        else if (step == 4)
            start(&f, 0, CREATE_3D, 0, 0, WORDS(9, 2, BGRA, 10, 64, 32, 1, 1, 0, 0, 0, 0));
        else
            start(&f, 0, UNREF, 0, 0, WORDS(3, 0));
        for (unsigned i = 0; i < 4 && f.d->r.hold; i++)
            answer_round(f.d); /* the command is there, its data are asked for */
        take_away(&f);
        tick(&f, 1);
        f.d->r.hold = false;
        rc_run(&f.d->r);
        (void)next(&f, UNSPEC);
        tick(&f, 100);
        give(&f);
        ready(&f);
        have_context(&f, 2);
        close_fake(&f);
    }
}

/* Whatever it sends that makes no sense ends it, and changes nothing. */
static void test_s244_hostile_renderer(void **state)
{
    static const uint32_t bad[][8] = { { 0 },
                                       { 9, 1 },
                                       { RENDER_READY, RENDER_VERSION, 1, 308, 2, 1376 },
                                       { RENDER_DONE, 0 },
                                       { RENDER_DONE, 4711 },
                                       { RENDER_RESULT, 0 },
                                       { RENDER_RESULT, 3, 1, 4, 77 } };
    enum { BAD = sizeof bad / sizeof bad[0] };
    fake f;
    (void)state;
    open_fake(&f);
    give(&f);
    for (unsigned i = 0; i < BAD + 4; i++) {
        uint8_t long_one[RENDER_REPLY_BYTES + 4] = { RENDER_DONE };
        if (i < BAD) {
            ready(&f);
            reply(&f, 8, bad[i]);
        } else if (i < BAD + 2) {
            assert_true(send(f.socket, long_one, i == BAD ? sizeof long_one : 8, 0) > 0);
        } else { /* in the place of READY */
            reply(&f, WORDS(i == BAD + 2 ? RENDER_DONE : RENDER_READY, RENDER_VERSION, 1, 308, 2,
                            RENDER_CAPSET_BYTES + 4));
        }
        tick(&f, 1);
        expect_none(&f);
        take_away(&f);
        for (unsigned k = 0; k < 12; k++)
            tick(&f, 1000);
        give(&f);
    }
    ready(&f);
    have_context(&f, 1);
    close_fake(&f);
}

/* A shader that never ends. */
static void test_s247_no_answer(void **state)
{
    fake f;
    (void)state;
    open_ready(&f);
    have_context(&f, 1);
    start_stream(&f, 0, 1, WORDS(0, 0));
    for (unsigned i = 0; i < 9; i++)
        tick(&f, 1000);
    expect_none(&f);
    assert_false(is_asked(&f));
    assert_int_equal(f.ended, 0);
    tick(&f, 2000);
    assert_int_equal(next(&f, UNSPEC), 0);
    assert_false(is_asked(&f)); /* not yet, but that one is over */
    assert_int_equal(f.ended, 1);
    take_away(&f);
    tick(&f, 200);
    give(&f);
    ready(&f);
    have_context(&f, 2);
    close_fake(&f);
}

static bool is_readable(fake *f)
{
    struct pollfd p = { f->d->r.kind->descriptor(f->d->r.dev), POLLIN, 0 };
    return poll(&p, 1, 0) == 1;
}

/* The end of what starts renderers: 3D is off, and nothing wakes the device for ever. */
static void test_s246_launcher_ends(void **state)
{
    (void)state;
    for (unsigned step = 0; step < 3; step++) {
        fake f;
        open_fake(&f);
        give(&f);
        if (step > 0)
            ready(&f);
        if (step > 1)
            take_away(&f);
        (void)close(f.launcher);
        f.launcher = -1;
        for (unsigned i = 0; i < 3; i++)
            tick(&f, 200);
        assert_false(is_readable(&f));
        if (step == 1)
            have_context(&f, 1); /* by the one that is still there */
        if (step < 2)
            take_away(&f);
        tick(&f, 1);
        tick(&f, 200);
        assert_false(is_readable(&f));
        start(&f, 0, CTX_CREATE, 2, 0, WORDS(0, 0));
        assert_int_equal(next(&f, UNSPEC), 0);
        drv_close(f.d);
    }
}

/* What starts renderers says why there is none, in the words of this system: EAGAIN, too. */
static void test_s246_not_started(void **state)
{
    fake f;
    (void)state;
    open_fake(&f);
    assert_true(is_asked(&f));
    assert_int_equal(fd_message_send(f.launcher, EAGAIN, NULL, 0), 0);
    tick(&f, 1);
    tick(&f, 100);
    give(&f);
    ready(&f);
    have_context(&f, 1);
    close_fake(&f);
}

/* It says nothing: commands do not wait for ever, and a late renderer serves. */
static void test_s246_start_takes_long(void **state)
{
    fake f;
    (void)state;
    open_fake(&f);
    start(&f, 0, CTX_CREATE, 1, 0, WORDS(0, 0));
    tick(&f, 29000);
    expect_none(&f);
    tick(&f, 2000);
    assert_int_equal(next(&f, UNSPEC), 0);
    assert_int_equal(create(f.d, 20, BGRA, 8, 8), OK);
    give(&f);
    ready(&f);
    have_context(&f, 1);
    close_fake(&f);
}

/* A driver that is reset finds nothing of what it had, and a renderer that knows nothing. */
static void test_resets_renew(void **state)
{
    (void)state;
    for (reset_kind how = 0; how < RESETS; how++) {
        fake f;
        open_ready(&f);
        drv_reset(f.d, how);
        assert_false(is_asked(&f)); /* it was not used */
        drv_start(f.d, F_USUAL | F_VIRGL, 64);
        have_context(&f, 1);
        have_texture(&f, 3, 8, 8);
        start_stream(&f, 0, 1, WORDS(0, 0));
        drv_reset(f.d, how);
        take_away(&f);
        give(&f);
        drv_start(f.d, F_USUAL | F_VIRGL, 64);
        start(&f, 0, CTX_CREATE, 1, 0, WORDS(0, 0)); /* waits */
        tick(&f, 1);
        expect_none(&f);
        ready(&f);
        expect(&f, RENDER_CONTEXT_CREATE, 1, 0);
        answer(&f, 0);
        assert_int_equal(next(&f, OK), 0);
        have_texture(&f, 3, 8, 8);
        close_fake(&f);
    }
}

/* Ends of long ago do not make commands fail after a reset. */
static void test_s246_reset_long_after_ends(void **state)
{
    fake f;
    (void)state;
    open_ready(&f);
    for (unsigned i = 0; i < 4; i++) {
        take_away(&f);
        tick(&f, 1);
        tick(&f, 1000);
        give(&f);
        ready(&f);
    }
    have_context(&f, 1);
    tick(&f, 11000);
    drv_reset(f.d, DEVICE_RESET);
    take_away(&f);
    drv_start(f.d, F_USUAL | F_VIRGL, 64);
    start(&f, 0, CTX_CREATE, 1, 0, WORDS(0, 0));
    tick(&f, 1);
    expect_none(&f);
    give(&f);
    ready(&f);
    expect(&f, RENDER_CONTEXT_CREATE, 1, 0);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 0);
    close_fake(&f);
}

/* ==== 7  Limits =============================================================================== */

static void test_s247_limits(void **state)
{
    static const uint32_t bad[][11] = {
        { 0, 9, 0, 64, 64, 1, 1, 0, 0, 0 },
        { 2, 9999, 0, 64, 64, 1, 1, 0, 0, 0 },
        { 9, 1, 0, 64, 64, 1, 1, 0, 0, 0 },
        { 2, 1, 0, 0, 64, 1, 1, 0, 0, 0 },
        { 2, 1, 0, 16385, 64, 1, 1, 0, 0, 0 },
        { 2, 1, 0, 64, 16385, 1, 1, 0, 0, 0 },
        { 3, 1, 0, 64, 64, 2049, 1, 0, 0, 0 },
        { 7, 1, 0, 64, 64, 1, 2049, 0, 0, 0 },
        { 2, 1, 0, 64, 64, 1, 1, 15, 0, 0 },
        { 2, 1, 0, 64, 64, 1, 1, 0, 17, 0 },
        { 0, 64, 0, (128 << 20) + 1, 1, 1, 1, 0, 0, 0 },
    };
    static const uint32_t large[][11] = { { 2, 1, 0, 8192, 8192, 1, 1, 0, 0, 0 },
                                          { 3, 31, 0, 16384, 16384, 2048, 1, 14, 0, 0 },
                                          { 7, 27, 0, 16384, 16384, 2048, 2048, 14, 16, 0 } };
    fake f;
    uint32_t w[12] = { 3 };
    (void)state;
    open_ready(&f);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memcpy(w + 1, bad[i], sizeof bad[i]);
        if (i == 0)
            w[5] = 64; /* a buffer has one row */
        refuse(&f, BAD_PARAMETER, CREATE_3D, 0, 12, w);
    }
    for (unsigned i = 0; i < sizeof large / sizeof large[0]; i++) {
        memcpy(w + 1, large[i], sizeof large[i]);
        refuse(&f, NO_MEMORY, CREATE_3D, 0, 12, w);
    }
    for (uint32_t i = 1; i <= 4; i++)
        have_buffer(&f, i, VS_VERTEX_BUFFER, 128 << 20);
    refuse(&f, NO_MEMORY, CREATE_3D, 0, WORDS(9, 0, VS_R8, 16, 1, 1, 1, 1, 0, 0, 0, 0));
    have(&f, UNREF, RENDER_RESOURCE_DESTROY, 0, 4, WORDS(4, 0));
    have_buffer(&f, 9, VS_VERTEX_BUFFER, 1);
    for (uint32_t i = 1; i <= 64; i++)
        have_context(&f, i);
    refuse(&f, NO_MEMORY, CTX_CREATE, 65, WORDS(0, 0));
    close_fake(&f);
}

/* A driver that resets its queue leaves requests behind.  A command waits until one of them is
   answered: the renderer is asked to free what is freed here. */
static void test_s247_requests_left_behind(void **state)
{
    fake f;
    (void)state;
    open_ready(&f);
    drv_reset(f.d, DEVICE_RESET);
    drv_start(f.d, F_USUAL | F_RESET | F_VIRGL, 64);
    have_texture(&f, 3, 64, 32);
    for (uint32_t id = 1; id <= RENDER_PENDING; id++) {
        start(&f, 0, CTX_CREATE, id, 0, WORDS(0, 0));
        expect(&f, RENDER_CONTEXT_CREATE, id, 0);
        set_common(f.d, QUEUE_SELECT, CONTROL, 2);
        set_common(f.d, QUEUE_RESET, 1, 2);
        rc_run(&f.d->r);
        make_queue(f.d, CONTROL, 64);
    }
    start(&f, 0, UNREF, 0, 0, WORDS(3, 0));
    tick(&f, 1);
    expect_none(&f);
    expect_no_request(&f);
    answer(&f, 0); /* the last of them */
    expect(&f, RENDER_RESOURCE_DESTROY, 0, 3);
    answer(&f, 0);
    assert_int_equal(next(&f, OK), 0);
    have_texture(&f, 3, 8, 8);
    close_fake(&f);
}

/* ==== 8  Random =============================================================================== */

enum { HEADS = 8, HEAD_STEP = 4, SEEDS = 60, STEPS = 400, ASKED_MOST = 64 };

/* A driver and a renderer that do what they like. */
typedef struct chaos {
    fake f;
    bool there, ready;
    uint32_t seed, asked[ASKED_MOST];
    unsigned count;                  /* of requests that are not answered */
    unsigned started[HEADS], places; /* commands that are not answered, in their order */
} chaos;

static uint32_t roll(chaos *c, uint32_t below)
{
    c->seed = c->seed * 1664525u + 1013904223u;
    return (c->seed >> 8) % below;
}

static void chaos_gone(chaos *c)
{
    if (c->there)
        take_away(&c->f);
    c->there = c->ready = false;
    c->count = 0;
}

static void chaos_send(chaos *c, unsigned count, const uint32_t *words)
{
    uint8_t m[RENDER_REPLY_BYTES] = { 0 };
    for (unsigned i = 0; i < count; i++)
        render_put(m, i, words[i]);
    if (send(c->f.socket, m, sizeof m, MSG_NOSIGNAL) < 0)
        chaos_gone(c);
}

static void chaos_receive(chaos *c)
{
    ssize_t n = 0;
    while (c->there && c->count < ASKED_MOST) {
        n = recv(c->f.socket, c->f.request, sizeof c->f.request, MSG_DONTWAIT);
        if (n <= 0)
            break;
        assert_true(render_request_fits(c->f.request, (size_t)n));
        c->asked[c->count++] = number(&c->f);
    }
    if (c->there && n == 0)
        chaos_gone(c);
}

static void chaos_answer(chaos *c, bool good)
{
    unsigned i;
    uint32_t asked;
    chaos_receive(c);
    if (!c->there || !c->count)
        return;
    i = roll(c, c->count);
    asked = c->asked[i];
    c->asked[i] = c->asked[--c->count];
    chaos_send(c, WORDS(RENDER_DONE, asked, good ? 0 : 1));
}

static void chaos_renderer(chaos *c)
{
    if (is_asked(&c->f)) {
        chaos_gone(c);
        hand_over(&c->f);
        c->there = true;
    }
    if (c->there && !c->ready && roll(c, 2)) {
        memset(c->f.shared + RENDER_SLOT_BYTES, 0xff, CAPS_2_BYTES);
        chaos_send(c, WORDS(RENDER_READY, RENDER_VERSION, 1, 308, 2, CAPS_2_BYTES));
        c->ready = c->there;
    }
    switch (c->ready ? roll(c, 250) : 999) {
    case 0:
        chaos_gone(c);
        break;
    case 1:
        chaos_send(c, WORDS(roll(c, 5), roll(c, 9), roll(c, 2)));
        break;
    case 2:
        c->f.now_ns += c->f.d->r.hold ? 0 : 11000 * MS; /* it does not answer */
        break;
    default:
        chaos_receive(c);
        if (c->ready && c->count && !roll(c, 4)) /* it follows from something */
            chaos_send(c, WORDS(RENDER_RESULT, 1 + roll(c, 4), 1, 4, 77));
        for (unsigned i = 0; c->ready && i < 3; i++)
            chaos_answer(c, roll(c, 8) != 0);
        break;
    }
}

static void chaos_start(chaos *c, uint32_t type, uint32_t extra, unsigned count,
                        const uint32_t *words)
{
    unsigned head = 0;
    for (unsigned i = 0; i < c->places; i++) { /* the first place that is free */
        if (c->started[i] == head) {
            head++;
            i = (unsigned)-1;
        }
    }
    c->started[c->places++] = head;
    start(&c->f, head * HEAD_STEP, type, 1 + roll(c, 3), extra, count, words);
}

static uint32_t side(chaos *c)
{
    static const uint32_t sides[] = { 0, 1, 3, 4, 16, 63, 64, 65, 1 << 20, 0xfffffff0u };
    return sides[roll(c, roll(c, 4) ? 7 : sizeof sides / sizeof sides[0])];
}

static void chaos_list(chaos *c)
{
    uint32_t count = 1 + roll(c, 4);
    for (uint32_t i = 0; i < count; i++)
        put_entry(c->f.d, i, MEM_LOW + AT_DATA + roll(c, 1 << 20), 1 + roll(c, 3 << 20));
    chaos_start(c, ATTACH, count * 16, WORDS(1 + roll(c, 4), count));
}

static void chaos_move(chaos *c)
{
    const uint32_t easy[12] = { 0, 0, 0, 1 + roll(c, 3 << 20), 1, 1, 0, 0, 1 + roll(c, 4) };
    const uint32_t w[12] = { roll(c, 3) ? 0 : side(c),
                             roll(c, 3) ? 0 : side(c),
                             0,
                             side(c),
                             roll(c, 2) ? 1 : side(c),
                             1,
                             roll(c, 2) ? 0 : side(c),
                             0,
                             1 + roll(c, 4),
                             roll(c, 8) ? 0 : 1,
                             roll(c, 3) ? 0 : side(c),
                             roll(c, 3) ? 0 : side(c) };
    chaos_start(c, roll(c, 2) ? TO_HOST_3D : FROM_HOST_3D, 0, 12, roll(c, 2) ? w : easy);
}

static void chaos_resource(chaos *c)
{
    uint32_t id = 1 + roll(c, 4);
    if (roll(c, 2))
        chaos_start(c, CREATE_3D, 0,
                    WORDS(id, 0, VS_R8, roll(c, 2) ? VS_CUSTOM : 16, 1 + roll(c, 3 << 20), 1, 1, 1,
                          0, 0, 0, 0));
    else
        chaos_start(c, CREATE_3D, 0,
                    WORDS(id, roll(c, 9), roll(c, 2) ? BGRA : roll(c, 313), 10, side(c), side(c), 1,
                          1 + roll(c, 6), roll(c, 3), 0, 0, 0));
}

static void chaos_driver(chaos *c)
{
    static const uint32_t simple[] = {
        CTX_CREATE, CTX_CREATE,  CTX_CREATE, CTX_CREATE, CTX_ATTACH,
        CTX_ATTACH, CTX_DESTROY, UNREF,      DETACH,     GET_CAPSET
    };
    uint32_t what = c->places < HEADS ? roll(c, 12) : 99, n;
    switch (what) {
    case 0:
    case 1:
        chaos_resource(c);
        break;
    case 2:
        chaos_list(c);
        break;
    case 3:
    case 4:
    case 5:
        chaos_move(c);
        break;
    case 6:
    case 7:
        n = roll(c, 64);
        for (uint32_t i = 0; i < n; i++)
            dxpu_put_le32(c->f.d->r.mem + AT_LIST + i * 4, roll(c, roll(c, 9) ? 43 : 60));
        chaos_start(c, SUBMIT_3D, n * 4, WORDS(n * 4, 0));
        break;
    case 8:
        chaos_start(c, SET_SCANOUT, 0, WORDS(0, 0, side(c), side(c), 0, 1 + roll(c, 4)));
        break;
    case 9:
        chaos_start(c, FLUSH, 0, WORDS(0, 0, side(c), side(c), 1 + roll(c, 4), 0));
        break;
    case 99:
        break;
    default:
        chaos_start(c, simple[roll(c, 10)], 0, WORDS(1 + roll(c, 4), 0));
        break;
    }
}

/* Answers are in the order of the commands. */
static void chaos_reap(chaos *c)
{
    uint32_t head, len;
    while (reap(c->f.d, CONTROL, &head, &len)) {
        uint32_t how = dxpu_get_le32(reply_of(c->f.d, head));
        assert_true(c->places > 0);
        assert_int_equal(head, c->started[0] * HEAD_STEP);
        assert_true((how >= OK && how <= 0x1104) || (how >= UNSPEC && how <= BAD_PARAMETER));
        memmove(c->started, c->started + 1, --c->places * sizeof c->started[0]);
    }
    assert_int_equal(status(c->f.d) & NEEDS_RESET, 0);
}

static void chaos_step(chaos *c)
{
    c->f.d->r.hold = roll(c, 3) == 0; /* the driver's memory takes its time */
    chaos_driver(c);
    chaos_renderer(c);
    /* below the time after which a read of the driver's memory counts as failed */
    tick(&c->f, c->f.d->r.hold ? 1 : roll(c, 150));
    if (c->f.d->r.hold && roll(c, 2))
        (void)rc_answer_one(&c->f.d->r);
    c->f.d->r.hold = false;
    rc_run(&c->f.d->r);
    chaos_reap(c);
    if (roll(c, 200))
        return;
    drv_reset(c->f.d, (reset_kind)roll(c, RESETS));
    drv_start(c->f.d, F_USUAL | F_VIRGL, 64);
    c->places = 0;
}

static unsigned long long counted(chaos *c, const char *name)
{
    return report_value(virtio_gpu_kind.report, c->f.d->r.dev, name);
}

static void test_random_drivers_and_renderers(void **state)
{
    unsigned long long streams = 0, moves = 0, ends = 0, results = 0;
    (void)state;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        chaos c = { .seed = seed };
        open_fake(&c.f);
        for (unsigned i = 0; i < STEPS; i++)
            chaos_step(&c);
        for (unsigned i = 0; c.places && i < 2000; i++) { /* all is answered in the end */
            if (is_asked(&c.f)) {
                chaos_gone(&c);
                hand_over(&c.f);
                c.there = true;
            }
            if (c.there && !c.ready) {
                chaos_send(&c, WORDS(RENDER_READY, RENDER_VERSION, 1, 308, 2, CAPS_2_BYTES));
                c.ready = c.there;
            }
            chaos_answer(&c, true);
            tick(&c.f, 50);
            chaos_reap(&c);
        }
        if (c.places)
            print_message("seed %u\n", seed);
        assert_int_equal(c.places, 0);
        streams += counted(&c, "streams");
        moves += counted(&c, "moves");
        ends += counted(&c, "renderer_ends");
        results += counted(&c, "render_results");
        drv_close(c.f.d);
        chaos_gone(&c);
        (void)close(c.f.launcher);
    }
    print_message("%llu streams, %llu moves, %llu ends, %llu results\n", streams, moves, ends,
                  results);
    assert_true(streams > SEEDS && moves > SEEDS && ends > SEEDS && results > SEEDS);
}

/* ==== 9  dxpu-render ========================================================================== */

enum { HANG_MS = 30000, TARGET = 1, VERTICES = 2, QUERY = 3, AT_QUERY = AT_DATA + 0x100000 };

/* The environment of the renderer has this, by which it is found. */
static char tag[40];

static void open_real(fake *f)
{
    const char *argv[] = { render_program(), "-q", "--threads", "2", NULL };
    int launcher;
    snprintf(tag, sizeof tag, "DXPU_TEST_RENDERER=%d", (int)getpid());
    assert_int_equal(putenv(tag), 0);
    launcher = launcher_start(argv, RENDER_MEMORY_BYTES);
    assert_true(launcher > 0);
    open_with(f, launcher);
}

/* Until the control queue has a command that is done; its reply's type. */
static uint32_t await(fake *f)
{
    struct pollfd p = { f->d->r.kind->descriptor(f->d->r.dev), POLLIN, 0 };
    uint32_t head, len;
    tick(f, 0);
    for (unsigned i = 0; !reap(f->d, CONTROL, &head, &len); i++) {
        assert_true(i < HANG_MS / 10);
        (void)poll(&p, 1, 10);
        tick(f, 1);
    }
    return dxpu_get_le32(reply_of(f->d, head));
}

static uint32_t real(fake *f, uint32_t type, uint32_t context, unsigned count,
                     const uint32_t *words)
{
    start(f, 0, type, context, 0, count, words);
    return await(f);
}

static uint32_t real_stream(fake *f, const virgl_stream *s)
{
    start_stream(f, 0, 1, s->count, s->word);
    return await(f);
}

static void real_resource(fake *f, uint32_t id, uint32_t target, uint32_t format, uint32_t bind,
                          uint32_t width, uint32_t height)
{
    assert_int_equal(
        real(f, CREATE_3D, 0, WORDS(id, target, format, bind, width, height, 1, 1, 0, 0, 0, 0)),
        OK);
    assert_int_equal(real(f, CTX_ATTACH, 1, WORDS(id, 0)), OK);
}

static void real_set_up(fake *f)
{
    assert_int_equal(real(f, CTX_CREATE, 1, WORDS(0, 0)), OK);
    real_resource(f, TARGET, VS_TEXTURE_2D, VS_BGRA, VS_RENDER_TARGET | VS_SAMPLER_VIEW, VS_SIDE,
                  VS_SIDE);
    real_resource(f, VERTICES, 0, VS_R8, VS_VERTEX_BUFFER, VS_VERTICES_BYTES, 1);
    real_resource(f, QUERY, 0, VS_R8, VS_CUSTOM, VS_RESULT_BYTES, 1);
    assert_int_equal(attach_one(f->d, TARGET, MEM_LOW + AT_DATA, VS_TARGET_BYTES), OK);
    assert_int_equal(attach_one(f->d, QUERY, MEM_LOW + AT_QUERY, 4096), OK);
}

static void real_draw(fake *f)
{
    virgl_stream s = { .count = 0 };
    vs_target(&s, TARGET);
    vs_clear(&s);
    vs_pipeline(&s, VERTICES);
    vs_query_begin(&s, QUERY);
    vs_draw(&s);
    vs_query_end(&s);
    assert_int_equal(real_stream(f, &s), OK);
}

static void real_read(fake *f)
{
    static const uint32_t box[6] = { 0, 0, 0, VS_SIDE, VS_SIDE, 1 };
    memset(f->d->r.mem + AT_DATA, 0, VS_TARGET_BYTES);
    start_move(f, 0, FROM_HOST_3D, TARGET, box, 0, 0);
    assert_int_equal(await(f), OK);
    assert_int_equal(vs_wrong(f->d->r.mem + AT_DATA), 0);
}

static void test_triangle_and_query(void **state)
{
    uint8_t *query;
    fake f;
    (void)state;
    open_real(&f);
    query = f.d->r.mem + AT_QUERY;
    real_set_up(&f);
    real_draw(&f);
    assert_int_equal(dxpu_get_le32(query), 1); /* before its fence */
    assert_in_range(dxpu_get_le64(query + 8), VS_SIDE * (VS_SIDE - 1) / 2,
                    VS_SIDE * (VS_SIDE + 1) / 2);
    real_read(&f);
    drv_close(f.d);
}

/* The process with the tag; 0: none. */
static pid_t find_renderer(void)
{
    DIR *all = opendir("/proc");
    struct dirent *e;
    pid_t found = 0;
    assert_non_null(all);
    while (!found && (e = readdir(all)) != NULL) {
        char path[300], text[16384], name[64] = "";
        size_t n = 0;
        FILE *file;
        snprintf(path, sizeof path, "/proc/%s/comm", e->d_name);
        file = atoi(e->d_name) > 0 ? fopen(path, "r") : NULL;
        if (!file)
            continue;
        if (fgets(name, sizeof name, file) && !strcmp(name, "dxpu-render\n")) {
            (void)fclose(file);
            snprintf(path, sizeof path, "/proc/%s/environ", e->d_name);
            file = fopen(path, "r");
            n = file ? fread(text, 1, sizeof text - 1, file) : 0;
        }
        if (file)
            (void)fclose(file);
        if (memmem(text, n, tag, strlen(tag) + 1))
            found = (pid_t)atoi(e->d_name);
    }
    (void)closedir(all);
    return found;
}

/* In the middle of its work; then the guest makes what it needs again. */
static void test_s246_killed(void **state)
{
    virgl_stream s = { .count = 0 };
    pid_t pid;
    fake f;
    (void)state;
    open_real(&f);
    real_set_up(&f);
    pid = find_renderer();
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    vs_target(&s, TARGET);
    vs_clear(&s);
    start_stream(&f, 0, 1, s.count, s.word);
    expect_none(&f);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(await(&f), UNSPEC);
    assert_int_equal(real(&f, CTX_DESTROY, 1, 0, NULL), OK);
    for (uint32_t id = TARGET; id <= QUERY; id++)
        assert_int_equal(real(&f, UNREF, 0, WORDS(id, 0)), OK);
    tick(&f, 200);
    real_set_up(&f);
    real_draw(&f);
    real_read(&f);
    assert_int_not_equal(find_renderer(), pid);
    drv_close(f.d);
}

/* One that hangs is ended, and another draws. */
static void test_s247_hangs(void **state)
{
    virgl_stream s = { .count = 0 };
    pid_t pid;
    fake f;
    (void)state;
    open_real(&f);
    real_set_up(&f);
    pid = find_renderer();
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    vs_target(&s, TARGET);
    vs_clear(&s);
    start_stream(&f, 0, 1, s.count, s.word);
    expect_none(&f);
    tick(&f, 11000);
    assert_int_equal(await(&f), UNSPEC);
    tick(&f, 200);
    assert_int_equal(real(&f, CTX_CREATE, 2, WORDS(0, 0)), OK);
    assert_int_not_equal(find_renderer(), pid);
    assert_int_equal(kill(pid, 0), -1);
    drv_close(f.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_features_need_a_renderer),
        cmocka_unit_test(test_not_opened),
        cmocka_unit_test(test_commands_need_the_feature),
        cmocka_unit_test(test_capability_sets_wait_and_are_masked),
        cmocka_unit_test(test_contexts_and_resources),
        cmocka_unit_test(test_refused_by_the_renderer),
        cmocka_unit_test(test_streams_are_parsed),
        cmocka_unit_test(test_rows_to_the_renderer),
        cmocka_unit_test(test_rows_to_the_driver),
        cmocka_unit_test(test_rows_without_gaps),
        cmocka_unit_test(test_large_buffer),
        cmocka_unit_test(test_boxes_are_checked),
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_fences_in_order),
        cmocka_unit_test(test_capability_set_in_order),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_s244_results_wait_for_room),
        cmocka_unit_test(test_s246_renderer_ends),
        cmocka_unit_test(test_s246_renderer_ends_anywhere),
        cmocka_unit_test(test_s244_hostile_renderer),
        cmocka_unit_test(test_s247_no_answer),
        cmocka_unit_test(test_s246_launcher_ends),
        cmocka_unit_test(test_s246_not_started),
        cmocka_unit_test(test_s246_start_takes_long),
        cmocka_unit_test(test_resets_renew),
        cmocka_unit_test(test_s246_reset_long_after_ends),
        cmocka_unit_test(test_s247_limits),
        cmocka_unit_test(test_s247_requests_left_behind),
        cmocka_unit_test(test_random_drivers_and_renderers),
    };
    const struct CMUnitTest rendered[] = {
        cmocka_unit_test(test_triangle_and_query),
        cmocka_unit_test(test_s246_killed),
        cmocka_unit_test(test_s247_hangs),
    };
    cmocka_set_test_filter(getenv("DXPU_TEST"));
    int failed = cmocka_run_group_tests_name("3D", tests, NULL, NULL);
    if (!render_works())
        return failed;
    return failed + cmocka_run_group_tests_name("3D by dxpu-render", rendered, NULL, NULL);
}
