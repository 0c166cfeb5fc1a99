/* shade.c - draw a shaded triangle of 640 x 480 and keep it on the screen
   SPDX-License-Identifier: MIT

       shade DEVICE  such as /dev/dri/card0; prints "drawn 3d" or "drawn 2d", then stays until it is
                     killed

   By 3D of a virtio display adapter, with a command stream as Mesa would make it, or, where it has
   none, by the guest's processor.  Corners are red, green and blue, and what is between them is
   mixed, before a dark ground; picture.wrong_shades() knows each pixel.  No library but libc. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <libdrm/virtgpu_drm.h>

#include "screen.h"
#include "virgl_stream.h"

#include <fcntl.h>
#include <unistd.h>

enum { SCANOUT = 1 << 18, PITCH = SCREEN_WIDTH * 4, PAGE = 4096 };

#define GROUND 0x30, 0x20, 0x18 /* blue, green, red */
/* Corners by what is left and above of them, in pixels; red, green, blue. */
static const float corner[3][5] = { { 320, 40, 1, 0, 0 },
                                    { 600, 440, 0, 1, 0 },
                                    { 40, 440, 0, 0, 1 } };

/* How much of each corner is in a point; one is below 0: it is outside. */
static void weigh(float x, float y, float weight[3])
{
    const float *a = corner[0], *b = corner[1], *c = corner[2];
    float all = (b[1] - c[1]) * (a[0] - c[0]) + (c[0] - b[0]) * (a[1] - c[1]);
    weight[0] = ((b[1] - c[1]) * (x - c[0]) + (c[0] - b[0]) * (y - c[1])) / all;
    weight[1] = ((c[1] - a[1]) * (x - c[0]) + (a[0] - c[0]) * (y - c[1])) / all;
    weight[2] = 1 - weight[0] - weight[1];
}

static void draw_pixel(uint8_t *to, uint32_t x, uint32_t y)
{
    static const uint8_t ground[4] = { GROUND, 0xff };
    float weight[3];
    weigh((float)x + 0.5f, (float)y + 0.5f, weight);
    if (weight[0] < 0 || weight[1] < 0 || weight[2] < 0) {
        memcpy(to, ground, sizeof ground);
        return;
    }
    for (unsigned i = 0; i < 3; i++) { /* each corner has one colour */
        to[2 - i] = (uint8_t)(weight[i] * 255 + 0.5f);
    }
    to[3] = 0xff;
}

static void draw_2d(screen *s)
{
    struct drm_mode_create_dumb buffer;
    uint8_t *at = screen_buffer(s, &buffer, SCREEN_WIDTH, SCREEN_HEIGHT);
    for (uint32_t y = 0; y < SCREEN_HEIGHT; y++) {
        for (uint32_t x = 0; x < SCREEN_WIDTH; x++)
            draw_pixel(at + (size_t)y * buffer.pitch + (size_t)x * 4, x, y);
    }
    screen_set(s, buffer.handle, buffer.pitch);
    screen_flush(s);
}

static struct drm_virtgpu_resource_create make(const screen *s, uint32_t target, uint32_t format,
                                               uint32_t bind, uint32_t width, uint32_t height,
                                               uint32_t bytes)
{
    struct drm_virtgpu_resource_create make;
    memset(&make, 0, sizeof make);
    make.target = target;
    make.format = format;
    make.bind = bind;
    make.width = width;
    make.height = height;
    make.depth = make.array_size = 1;
    make.size = bytes;
    screen_ask(s, "resource", DRM_IOCTL_VIRTGPU_RESOURCE_CREATE, &make);
    return make;
}

static float to_clip(float at, float size)
{
    return at * 2 / size - 1;
}

/* In place of those of vs_pipeline(), and the whole screen. */
static void triangle(virgl_stream *v, uint32_t vertices)
{
    static const float view[6] = { SCREEN_WIDTH / 2.0f, SCREEN_HEIGHT / 2.0f, 0.5f,
                                   SCREEN_WIDTH / 2.0f, SCREEN_HEIGHT / 2.0f, 0.5f };
    vs_begin(v, 9, 0, 11 + VS_VERTICES_BYTES / 4);
    vs_put(v, vertices);
    for (unsigned i = 0; i < 7; i++)
        vs_put(v, 0);
    vs_put(v, VS_VERTICES_BYTES);
    vs_put(v, 1);
    vs_put(v, 1);
    for (unsigned i = 0; i < 3; i++) {
        vs_put_float(v, to_clip(corner[i][0], SCREEN_WIDTH));
        vs_put_float(v, to_clip(corner[i][1], SCREEN_HEIGHT)); /* row 0 is at -1 */
        vs_put_float(v, 0);
        vs_put_float(v, 1);
        for (unsigned color = 2; color < 5; color++)
            vs_put_float(v, corner[i][color]);
        vs_put_float(v, 1);
    }
    vs_begin(v, 4, 0, 7);
    vs_put(v, 0);
    for (unsigned i = 0; i < 6; i++)
        vs_put_float(v, view[i]);
}

static void clear(virgl_stream *v)
{
    static const uint8_t ground[3] = { GROUND };
    vs_begin(v, 7, 0, 8);
    vs_put(v, 4);
    for (unsigned i = 3; i-- > 0;)
        vs_put_float(v, (float)ground[i] / 255.0f);
    vs_put_float(v, 1);
    for (unsigned i = 0; i < 3; i++) /* depth, stencil */
        vs_put(v, 0);
}

static void draw_3d(screen *s)
{
    struct drm_virtgpu_resource_create target =
        make(s, VS_TEXTURE_2D, VS_BGRA, VS_RENDER_TARGET | VS_SAMPLER_VIEW | SCANOUT, SCREEN_WIDTH,
             SCREEN_HEIGHT, SCREEN_HEIGHT * PITCH);
    struct drm_virtgpu_resource_create vertices =
        make(s, 0, VS_R8, VS_VERTEX_BUFFER, VS_VERTICES_BYTES, 1, PAGE);
    uint32_t handles[2] = { target.bo_handle, vertices.bo_handle };
    struct drm_virtgpu_execbuffer run;
    struct drm_virtgpu_3d_wait wait;
    virgl_stream v = { .count = 0 };
    vs_target(&v, target.res_handle);
    vs_pipeline(&v, vertices.res_handle);
    clear(&v);
    triangle(&v, vertices.res_handle);
    vs_draw(&v);
    memset(&run, 0, sizeof run);
    run.size = v.count * 4;
    run.command = (uintptr_t)v.word;
    run.bo_handles = (uintptr_t)handles;
    run.num_bo_handles = 2;
    screen_ask(s, "stream", DRM_IOCTL_VIRTGPU_EXECBUFFER, &run);
    memset(&wait, 0, sizeof wait);
    wait.handle = target.bo_handle;
    screen_ask(s, "wait", DRM_IOCTL_VIRTGPU_WAIT, &wait);
    screen_set(s, target.bo_handle, PITCH);
    screen_flush(s);
}

static int has_3d(const screen *s)
{
    uint64_t value = 0;
    struct drm_virtgpu_getparam param;
    memset(&param, 0, sizeof param);
    param.param = VIRTGPU_PARAM_3D_FEATURES;
    param.value = (uintptr_t)&value;
    return !ioctl(s->device, DRM_IOCTL_VIRTGPU_GETPARAM, &param) && value == 1;
}

int main(int argc, char **argv)
{
    screen s = { .program = "shade" };
    int by_3d;
    s.device = argc == 2 ? open(argv[1], O_RDWR) : -1;
    if (s.device < 0) {
        fprintf(stderr, "usage: shade DEVICE\n");
        return 2;
    }
    screen_find(&s);
    by_3d = has_3d(&s);
    if (by_3d)
        draw_3d(&s);
    else
        draw_2d(&s);
    printf("drawn %s\n", by_3d ? "3d" : "2d");
    fflush(stdout);
    pause();
    return 0;
}
