/* virtio_gpu_driver.h - for tests of the virtio display adapter: its driver's commands
   SPDX-License-Identifier: MIT

   Numbers are those of Virtual I/O Device 1.2, 5.7.  Include as virtio_driver.h, after
   virtio_gpu.h. */
#ifndef VIRTIO_GPU_DRIVER_H_INCLUDED
#define VIRTIO_GPU_DRIVER_H_INCLUDED

#include "virtio_driver.h"

enum { CONTROL = 0, CURSOR = 1, QUEUES = 2 };

enum { /* commands */
       DISPLAY_INFO = 0x100,
       CREATE_2D = 0x101,
       UNREF = 0x102,
       SET_SCANOUT = 0x103,
       FLUSH = 0x104,
       TRANSFER = 0x105,
       ATTACH = 0x106,
       DETACH = 0x107,
       GET_EDID = 0x10a,
       CREATE_BLOB = 0x10c,
       CTX_CREATE = 0x200,
       UPDATE_CURSOR = 0x300,
       MOVE_CURSOR = 0x301
};

enum { /* replies */
       OK = 0x1100,
       OK_DISPLAY = 0x1101,
       OK_EDID = 0x1104,
       UNSPEC = 0x1200,
       NO_MEMORY = 0x1201,
       BAD_SCANOUT = 0x1202,
       BAD_RESOURCE = 0x1203,
       BAD_PARAMETER = 0x1205
};

enum { BGRA = 1, BGRX = 2, ARGB = 3, XRGB = 4, RGBA = 67, XBGR = 68, ABGR = 121, RGBX = 134 };

#define F_EDID  (1ull << 1)
#define F_USUAL (F_EDID | F_VERSION_1 | F_PLATFORM)

enum { AT_REPLIES = AT_HEADERS + 0x10000, REPLY_ROOM = 1088, AT_LIST = 0x380000 };

static inline driver *drv_open(void)
{
    device_settings s = { .mps_bytes = 256, .identity = 0x77 };
    return drv_create(&virtio_gpu_kind, &s, QUEUES);
}

static inline driver *drv_up(uint64_t features)
{
    driver *d = drv_open();
    drv_start(d, features, 64);
    return d;
}

static inline uint8_t *command_of(driver *d, unsigned head)
{
    return d->r.mem + AT_HEADERS + head * 128u;
}

static inline uint8_t *reply_of(driver *d, unsigned head)
{
    return d->r.mem + AT_REPLIES + head * REPLY_ROOM;
}

/* A command with its words after the header.  Its length. */
static inline uint32_t put_command(driver *d, unsigned head, uint32_t type, unsigned count,
                                   const uint32_t *words)
{
    uint8_t *c = command_of(d, head);
    memset(c, 0, 128);
    dxpu_put_le32(c, type);
    for (unsigned i = 0; i < count; i++)
        dxpu_put_le32(c + 24 + i * 4u, words[i]);
    return 24 + count * 4;
}

/* Descriptors from `head` on: the command, `extra` bytes of a list, room for a reply. */
static inline void put_chain(driver *d, uint8_t *table, unsigned first, unsigned head,
                             uint32_t bytes, uint32_t extra, uint32_t room)
{
    unsigned i = first;
    memset(reply_of(d, head), 0, REPLY_ROOM);
    put_desc(table, i, MEM_LOW + AT_HEADERS + head * 128u, bytes, extra || room ? NEXT : 0, i + 1);
    if (extra) {
        i++;
        put_desc(table, i, MEM_LOW + AT_LIST, extra, room ? NEXT : 0, i + 1);
    }
    if (room)
        put_desc(table, i + 1, MEM_LOW + AT_REPLIES + head * REPLY_ROOM, room, WRITE, 0);
}

static inline void submit(driver *d, unsigned q, unsigned head, uint32_t bytes, uint32_t extra,
                          uint32_t room)
{
    put_chain(d, ring_mem(d, q, 0), head, head, bytes, extra, room);
    avail_put(d, q, (uint16_t)head);
}

/* The command in place 0 is done; the type of its reply. */
static inline uint32_t done(driver *d, unsigned q, uint32_t bytes, uint32_t extra, uint32_t room)
{
    uint32_t head, len;
    submit(d, q, 0, bytes, extra, room);
    notify(d, q);
    rc_run(&d->r);
    assert_true(reap(d, q, &head, &len));
    assert_int_equal(head, 0);
    assert_true(len <= room);
    return dxpu_get_le32(reply_of(d, 0));
}

#define WORDS(...)                                                                                 \
    (unsigned)(sizeof((uint32_t[]){ __VA_ARGS__ }) / 4), (uint32_t[])                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static inline uint32_t run(driver *d, uint32_t type, unsigned count, const uint32_t *words)
{
    return done(d, type >= UPDATE_CURSOR ? CURSOR : CONTROL, put_command(d, 0, type, count, words),
                0, REPLY_ROOM);
}

static inline uint32_t create(driver *d, uint32_t id, uint32_t format, uint32_t width,
                              uint32_t height)
{
    return run(d, CREATE_2D, WORDS(id, format, width, height));
}

static inline void put_entry(driver *d, unsigned i, uint64_t at, uint32_t bytes)
{
    uint8_t *e = d->r.mem + AT_LIST + i * 16u;
    dxpu_put_le64(e, at);
    dxpu_put_le32(e + 8, bytes);
}

/* With `count` entries in the list. */
static inline uint32_t attach(driver *d, uint32_t id, uint32_t count)
{
    return done(d, CONTROL, put_command(d, 0, ATTACH, WORDS(id, count)), count * 16, REPLY_ROOM);
}

static inline uint32_t attach_one(driver *d, uint32_t id, uint64_t at, uint32_t bytes)
{
    put_entry(d, 0, at, bytes);
    return attach(d, id, 1);
}

static inline uint32_t transfer(driver *d, uint32_t id, uint32_t x, uint32_t y, uint32_t w,
                                uint32_t h, uint64_t offset)
{
    return run(d, TRANSFER, WORDS(x, y, w, h, (uint32_t)offset, (uint32_t)(offset >> 32), id, 0));
}

static inline uint32_t scanout(driver *d, uint32_t id, uint32_t x, uint32_t y, uint32_t w,
                               uint32_t h)
{
    return run(d, SET_SCANOUT, WORDS(x, y, w, h, 0, id));
}

/* The picture, some rows at a time; NULL: dark. */
static inline uint8_t *picture(driver *d, unsigned *w, unsigned *h)
{
    uint8_t *rgb;
    if (!virtio_gpu_kind.picture(d->r.dev, NULL, 0, 0, w, h))
        return NULL;
    rgb = malloc((size_t)*w * *h * 3);
    assert_non_null(rgb);
    for (unsigned row = 0; row < *h; row += 7)
        assert_true(virtio_gpu_kind.picture(d->r.dev, rgb + (size_t)row * *w * 3, row,
                                            *h - row < 7 ? *h - row : 7, w, h));
    return rgb;
}

static inline void expect_size(driver *d, unsigned want_w, unsigned want_h)
{
    unsigned w, h;
    uint8_t *rgb = picture(d, &w, &h);
    assert_non_null(rgb);
    assert_int_equal(w, want_w);
    assert_int_equal(h, want_h);
    free(rgb);
}

static inline void expect_pixel(driver *d, unsigned x, unsigned y, uint32_t want)
{
    unsigned w, h;
    uint8_t *rgb = picture(d, &w, &h), *p;
    assert_non_null(rgb);
    assert_true(x < w && y < h);
    p = rgb + ((size_t)y * w + x) * 3;
    assert_int_equal((uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2], want);
    free(rgb);
}

static inline void expect_dark(driver *d)
{
    unsigned w, h;
    assert_false(virtio_gpu_kind.picture(d->r.dev, NULL, 0, 0, &w, &h));
}

#endif /* VIRTIO_GPU_DRIVER_H_INCLUDED */
