/* screen.h - the screen of a DRM driver, for programs in a guest: no library but libc
   SPDX-License-Identifier: MIT

   Where something fails, the program says what, and ends. */
#ifndef SCREEN_H_INCLUDED
#define SCREEN_H_INCLUDED

#include <libdrm/drm.h>
#include <libdrm/drm_mode.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum { SCREEN_WIDTH = 640, SCREEN_HEIGHT = 480, SCREEN_MODES = 64 };

typedef struct screen {
    const char *program;
    int device;
    uint32_t crtc, connector;
    struct drm_mode_modeinfo mode;
    uint32_t fb;
} screen;

/* An ioctl's struct is cleared by the caller. */
static inline void screen_ask(const screen *s, const char *what, unsigned long number,
                              void *argument)
{
    int rc;
    do
        rc = ioctl(s->device, number, argument);
    while (rc && errno == EINTR);
    if (rc) {
        fprintf(stderr, "%s: %s: %s\n", s->program, what, strerror(errno));
        exit(1);
    }
}

/* The adapter has one of each, and a mode of this size. */
static inline void screen_find(screen *s)
{
    static struct drm_mode_modeinfo modes[SCREEN_MODES];
    struct drm_mode_card_res res;
    struct drm_mode_get_connector con;
    memset(&res, 0, sizeof res);
    res.count_crtcs = res.count_connectors = 1;
    res.crtc_id_ptr = (uintptr_t)&s->crtc;
    res.connector_id_ptr = (uintptr_t)&s->connector;
    screen_ask(s, "resources", DRM_IOCTL_MODE_GETRESOURCES, &res);
    memset(&con, 0, sizeof con);
    con.connector_id = s->connector;
    con.count_modes = 0; /* asks for a new look at the EDID */
    screen_ask(s, "connector", DRM_IOCTL_MODE_GETCONNECTOR, &con);
    con.count_props = con.count_encoders = 0;
    con.modes_ptr = (uintptr_t)modes;
    if (con.count_modes > SCREEN_MODES)
        con.count_modes = 0;
    screen_ask(s, "modes", DRM_IOCTL_MODE_GETCONNECTOR, &con);
    for (uint32_t i = 0; i < con.count_modes && i < SCREEN_MODES; i++) {
        printf("mode %s %u\n", modes[i].name, modes[i].vrefresh);
        if (modes[i].hdisplay == SCREEN_WIDTH && modes[i].vdisplay == SCREEN_HEIGHT &&
            !s->mode.clock)
            s->mode = modes[i];
    }
    if (!s->mode.clock) {
        fprintf(stderr, "%s: no mode of %d x %d\n", s->program, SCREEN_WIDTH, SCREEN_HEIGHT);
        exit(1);
    }
}

/* A buffer of 32 bits a pixel, mapped. */
static inline void *screen_buffer(const screen *s, struct drm_mode_create_dumb *buffer,
                                  uint32_t width, uint32_t height)
{
    struct drm_mode_map_dumb map;
    void *at;
    memset(buffer, 0, sizeof *buffer);
    buffer->width = width;
    buffer->height = height;
    buffer->bpp = 32;
    screen_ask(s, "buffer", DRM_IOCTL_MODE_CREATE_DUMB, buffer);
    memset(&map, 0, sizeof map);
    map.handle = buffer->handle;
    screen_ask(s, "map", DRM_IOCTL_MODE_MAP_DUMB, &map);
    at = mmap(NULL, buffer->size, PROT_READ | PROT_WRITE, MAP_SHARED, s->device, (off_t)map.offset);
    if (at == MAP_FAILED) {
        fprintf(stderr, "%s: mmap: %s\n", s->program, strerror(errno));
        exit(1);
    }
    return at;
}

/* The buffer, or 3D resource, is what the screen shows from now on. */
static inline void screen_set(screen *s, uint32_t handle, uint32_t pitch)
{
    struct drm_mode_fb_cmd fb;
    struct drm_mode_crtc set;
    memset(&fb, 0, sizeof fb);
    fb.width = SCREEN_WIDTH;
    fb.height = SCREEN_HEIGHT;
    fb.pitch = pitch;
    fb.bpp = 32;
    fb.depth = 24;
    fb.handle = handle;
    screen_ask(s, "framebuffer", DRM_IOCTL_MODE_ADDFB, &fb);
    s->fb = fb.fb_id;
    memset(&set, 0, sizeof set);
    set.mode = s->mode;
    set.crtc_id = s->crtc;
    set.fb_id = s->fb;
    set.set_connectors_ptr = (uintptr_t)&s->connector;
    set.count_connectors = 1;
    set.mode_valid = 1;
    screen_ask(s, "set", DRM_IOCTL_MODE_SETCRTC, &set);
}

/* It has been drawn to: a driver that keeps a copy writes it out; one that does not has nothing to
   do. */
static inline void screen_flush(const screen *s)
{
    struct drm_mode_fb_dirty_cmd dirty;
    memset(&dirty, 0, sizeof dirty);
    dirty.fb_id = s->fb;
    if (ioctl(s->device, DRM_IOCTL_MODE_DIRTYFB, &dirty) && errno != ENOSYS && errno != EOPNOTSUPP)
        fprintf(stderr, "%s: dirty: %s\n", s->program, strerror(errno));
}

#endif /* SCREEN_H_INCLUDED */
