/* virgl.c - draw with 3D of a virtio display adapter through Linux's DRM driver, without Mesa
   SPDX-License-Identifier: MIT

       virgl DEVICE [FRAMES]  such as /dev/dri/renderD128

   Prints a line "ok NAME" or "FAILED NAME" for each check.  With FRAMES it draws as many more, each
   read back, and prints how many a second; 0: until it is killed, or drawing fails. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include "virgl_stream.h"

#include <libdrm/drm.h>
#include <libdrm/virtgpu_drm.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CAPSET = 2, CAPSET_BYTES = 4096, CAPS_AT = 392, PAGE = 4096 };

static int device;
static int failed;

static void check(const char *name, int truth)
{
    printf("%s %s\n", truth ? "ok" : "FAILED", name);
    fflush(stdout);
    failed |= !truth;
}

/* An ioctl's struct is cleared by the caller; 0, or -1 and errno. */
static int ask(unsigned long number, void *argument)
{
    int rc;
    do
        rc = ioctl(device, number, argument);
    while (rc && errno == EINTR);
    return rc;
}

typedef struct buffer {
    uint32_t handle, resource, bytes;
    uint8_t *at;
} buffer;

static void make(buffer *b, uint32_t target, uint32_t format, uint32_t bind, uint32_t width,
                 uint32_t height, uint32_t bytes)
{
    struct drm_virtgpu_resource_create make;
    struct drm_virtgpu_map map;
    memset(&make, 0, sizeof make);
    make.target = target;
    make.format = format;
    make.bind = bind;
    make.width = width;
    make.height = height;
    make.depth = make.array_size = 1;
    make.size = bytes;
    if (ask(DRM_IOCTL_VIRTGPU_RESOURCE_CREATE, &make)) {
        perror("virgl: resource");
        exit(1);
    }
    b->handle = make.bo_handle;
    b->resource = make.res_handle;
    b->bytes = bytes;
    memset(&map, 0, sizeof map);
    map.handle = b->handle;
    b->at = MAP_FAILED;
    if (!ask(DRM_IOCTL_VIRTGPU_MAP, &map))
        b->at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, (off_t)map.offset);
    if (b->at == MAP_FAILED) {
        perror("virgl: map");
        exit(1);
    }
}

static int wait_for(const buffer *b)
{
    struct drm_virtgpu_3d_wait wait;
    memset(&wait, 0, sizeof wait);
    wait.handle = b->handle;
    return ask(DRM_IOCTL_VIRTGPU_WAIT, &wait);
}

static int submit(const virgl_stream *s, const buffer *b, uint32_t count)
{
    struct drm_virtgpu_execbuffer run;
    uint32_t handles[3];
    for (uint32_t i = 0; i < count; i++)
        handles[i] = b[i].handle;
    memset(&run, 0, sizeof run);
    run.size = s->count * 4;
    run.command = (uintptr_t)s->word;
    run.bo_handles = (uintptr_t)handles;
    run.num_bo_handles = count;
    return ask(DRM_IOCTL_VIRTGPU_EXECBUFFER, &run);
}

static int move(unsigned long number, const buffer *b, uint32_t width, uint32_t height)
{
    struct drm_virtgpu_3d_transfer_from_host move; /* the other one has the same members */
    memset(&move, 0, sizeof move);
    move.bo_handle = b->handle;
    move.box.w = width;
    move.box.h = height;
    move.box.d = 1;
    return ask(number, &move) || wait_for(b);
}

static void capabilities(void)
{
    static uint8_t caps[CAPSET_BYTES];
    uint64_t value = 0;
    struct drm_virtgpu_getparam param;
    struct drm_virtgpu_get_caps get;
    memset(&param, 0, sizeof param);
    param.param = VIRTGPU_PARAM_3D_FEATURES;
    param.value = (uintptr_t)&value;
    check("3d_features", !ask(DRM_IOCTL_VIRTGPU_GETPARAM, &param) && value == 1);
    memset(&get, 0, sizeof get);
    get.cap_set_id = CAPSET;
    get.cap_set_ver = 1;
    get.addr = (uintptr_t)caps;
    get.size = sizeof caps;
    check("capability_set", !ask(DRM_IOCTL_VIRTGPU_GET_CAPS, &get) && dxpu_get_le32(caps) >= 1);
    check("capabilities_masked",
          dxpu_get_le32(caps + CAPS_AT) && !(dxpu_get_le32(caps + CAPS_AT) & 0x84020000u));
}

/* b: target, vertices, query.  True: drawn, read back, and every pixel is right. */
static int frame(buffer *b, virgl_stream *s)
{
    memset(b[0].at, 0, VS_TARGET_BYTES);
    return !submit(s, b, 3) && !move(DRM_IOCTL_VIRTGPU_TRANSFER_FROM_HOST, b, VS_SIDE, VS_SIDE) &&
           !vs_wrong(b[0].at);
}

/* The first pixels of the target, there and back. */
static int there_and_back(buffer *b)
{
    for (unsigned i = 0; i < VS_TARGET_BYTES; i++)
        b->at[i] = (uint8_t)(i * 7 + i / 256);
    if (move(DRM_IOCTL_VIRTGPU_TRANSFER_TO_HOST, b, VS_SIDE, 8))
        return 0;
    memset(b->at, 0, VS_TARGET_BYTES);
    if (move(DRM_IOCTL_VIRTGPU_TRANSFER_FROM_HOST, b, VS_SIDE, 8))
        return 0;
    for (unsigned i = 0; i < VS_TARGET_BYTES; i++) {
        if (b->at[i] != (i < 8 * VS_ROW_BYTES ? (uint8_t)(i * 7 + i / 256) : 0))
            return 0;
    }
    return 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void frames(buffer *b, unsigned long count)
{
    virgl_stream s = { .count = 0 };
    double start = now();
    unsigned long i = 0;
    vs_clear(&s);
    vs_draw(&s);
    printf("drawing\n");
    fflush(stdout);
    while ((!count || i < count) && frame(b, &s))
        i++;
    if (count)
        printf("frames %lu %.1f\n", i, (double)i / (now() - start));
    check("frames", count && i == count);
}

int main(int argc, char **argv)
{
    virgl_stream s = { .count = 0 };
    buffer b[3];
    device = argc == 2 || argc == 3 ? open(argv[1], O_RDWR) : -1;
    if (device < 0) {
        fprintf(stderr, "usage: virgl DEVICE [FRAMES]\n");
        return 2;
    }
    capabilities();
    make(&b[0], VS_TEXTURE_2D, VS_BGRA, VS_RENDER_TARGET | VS_SAMPLER_VIEW, VS_SIDE, VS_SIDE,
         VS_TARGET_BYTES);
    make(&b[1], 0, VS_R8, VS_VERTEX_BUFFER, VS_VERTICES_BYTES, 1, PAGE);
    make(&b[2], 0, VS_R8, VS_CUSTOM, VS_RESULT_BYTES, 1, PAGE);
    check("there_and_back", there_and_back(&b[0]));
    vs_target(&s, b[0].resource);
    vs_clear(&s);
    check("clear", !submit(&s, b, 3) &&
                       !move(DRM_IOCTL_VIRTGPU_TRANSFER_FROM_HOST, b, VS_SIDE, VS_SIDE) &&
                       dxpu_get_le32(b[0].at) == VS_CLEARED && vs_wrong(b[0].at));
    s.count = 0;
    vs_pipeline(&s, b[1].resource);
    vs_query_begin(&s, b[2].resource);
    vs_draw(&s);
    vs_query_end(&s);
    check("triangle", frame(b, &s));
    check("query", !wait_for(&b[2]) && dxpu_get_le32(b[2].at) == 1 &&
                       dxpu_get_le64(b[2].at + 8) >= VS_SIDE * (VS_SIDE - 1) / 2 &&
                       dxpu_get_le64(b[2].at + 8) <= VS_SIDE * (VS_SIDE + 1) / 2);
    if (argc == 3)
        frames(b, strtoul(argv[2], NULL, 10));
    return failed;
}
