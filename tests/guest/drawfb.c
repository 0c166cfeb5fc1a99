/* drawfb.c - draw a pattern of 640 x 480 through a DRM driver and keep it on the screen
   SPDX-License-Identifier: MIT

       drawfb DEVICE [X Y]  such as /dev/dri/card0; prints "drawn", then stays until it is killed

   The pixel at column x and row y has red x * 255 / 639, green y * 255 / 479 and the low 8 bits of
   x ^ y as blue, so that every misplaced or lost write shows.  With X and Y a cursor of 64 x 64 has
   its first pixel there: red grows to the right, green downwards, blue is 200; its hot spot is at
   5, 9, and its lower half cannot be seen.  No library but libc. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif
#include <libdrm/drm.h>
#include <libdrm/drm_mode.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WIDTH = 640, HEIGHT = 480, MODES = 64, CURSOR = 64 };

static int device;

/* An ioctl's struct is cleared by the caller; the program ends when it fails. */
static void ask(const char *what, unsigned long number, void *argument)
{
    int rc;
    do
        rc = ioctl(device, number, argument);
    while (rc && errno == EINTR);
    if (rc) {
        fprintf(stderr, "drawfb: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void find_screen(uint32_t *crtc, uint32_t *connector, struct drm_mode_modeinfo *mode)
{
    static struct drm_mode_modeinfo modes[MODES];
    struct drm_mode_card_res res;
    struct drm_mode_get_connector con;
    memset(&res, 0, sizeof res);
    res.count_crtcs = res.count_connectors = 1; /* the adapter has one of each */
    res.crtc_id_ptr = (uintptr_t)crtc;
    res.connector_id_ptr = (uintptr_t)connector;
    ask("resources", DRM_IOCTL_MODE_GETRESOURCES, &res);
    memset(&con, 0, sizeof con);
    con.connector_id = *connector;
    con.count_modes = 0; /* asks for a new look at the EDID */
    ask("connector", DRM_IOCTL_MODE_GETCONNECTOR, &con);
    con.count_props = con.count_encoders = 0;
    con.modes_ptr = (uintptr_t)modes;
    if (con.count_modes > MODES)
        con.count_modes = 0;
    ask("modes", DRM_IOCTL_MODE_GETCONNECTOR, &con);
    for (uint32_t i = 0; i < con.count_modes && i < MODES; i++) {
        printf("mode %s %u\n", modes[i].name, modes[i].vrefresh);
        if (modes[i].hdisplay == WIDTH && modes[i].vdisplay == HEIGHT && !mode->clock)
            *mode = modes[i];
    }
    if (!mode->clock) {
        fprintf(stderr, "drawfb: no mode of %d x %d\n", WIDTH, HEIGHT);
        exit(1);
    }
}

static uint32_t pixel(uint32_t x, uint32_t y)
{
    return x * 255 / (WIDTH - 1) << 16 | y * 255 / (HEIGHT - 1) << 8 | ((x ^ y) & 255);
}

static void draw_bytes(volatile uint8_t *to, uint32_t color)
{
    for (unsigned i = 0; i < 4; i++)
        to[i] = (uint8_t)(color >> 8 * i);
}

/* Rows differ in how they are written, so that whatever merges writes on their way is put to the
   test: by pixels; by bytes; backwards, each pixel first with a wrong colour; all at once. */
static void draw_row(uint8_t *to, uint32_t y)
{
    volatile uint32_t *by_pixel = (uint32_t *)(void *)to;
    static uint32_t row[WIDTH];
    for (uint32_t i = 0; i < WIDTH; i++) {
        uint32_t x = y % 4 == 2 ? WIDTH - 1 - i : i;
        row[x] = pixel(x, y);
        if (y % 4 == 1)
            draw_bytes(to + (size_t)x * 4, row[x]);
        if (y % 4 == 2)
            by_pixel[x] = ~row[x];
        if (y % 4 == 0 || y % 4 == 2)
            by_pixel[x] = row[x];
    }
    if (y % 4 == 3)
        memcpy(to, row, sizeof row);
}

static void draw(uint8_t *to, uint32_t pitch)
{
    for (uint32_t y = 0; y < HEIGHT; y++)
        draw_row(to + (size_t)y * pitch, y);
}

/* A buffer of 32 bits a pixel, mapped. */
static void *make_buffer(struct drm_mode_create_dumb *buffer, uint32_t width, uint32_t height)
{
    struct drm_mode_map_dumb map;
    void *at;
    memset(buffer, 0, sizeof *buffer);
    buffer->width = width;
    buffer->height = height;
    buffer->bpp = 32;
    ask("buffer", DRM_IOCTL_MODE_CREATE_DUMB, buffer);
    memset(&map, 0, sizeof map);
    map.handle = buffer->handle;
    ask("map", DRM_IOCTL_MODE_MAP_DUMB, &map);
    at = mmap(NULL, buffer->size, PROT_READ | PROT_WRITE, MAP_SHARED, device, (off_t)map.offset);
    if (at == MAP_FAILED) {
        perror("drawfb: mmap");
        exit(1);
    }
    return at;
}

static void draw_cursor(uint32_t crtc, int x, int y)
{
    struct drm_mode_create_dumb buffer;
    struct drm_mode_cursor2 cursor;
    uint32_t *at = make_buffer(&buffer, CURSOR, CURSOR);
    for (uint32_t i = 0; i < CURSOR * CURSOR; i++)
        at[i] = i < CURSOR * CURSOR / 2 ? 0xff0000c8 | i % CURSOR << 16 | i / CURSOR << 8 : 0;
    memset(&cursor, 0, sizeof cursor);
    cursor.flags = DRM_MODE_CURSOR_BO | DRM_MODE_CURSOR_MOVE;
    cursor.crtc_id = crtc;
    cursor.x = x;
    cursor.y = y;
    cursor.width = cursor.height = CURSOR;
    cursor.handle = buffer.handle;
    cursor.hot_x = 5;
    cursor.hot_y = 9;
    ask("cursor", DRM_IOCTL_MODE_CURSOR2, &cursor);
}

int main(int argc, char **argv)
{
    struct drm_mode_create_dumb buffer;
    struct drm_mode_fb_cmd fb;
    struct drm_mode_fb_dirty_cmd dirty;
    struct drm_mode_crtc set;
    uint32_t crtc = 0, connector = 0;
    void *at;
    device = argc == 2 || argc == 4 ? open(argv[1], O_RDWR) : -1;
    if (device < 0) {
        fprintf(stderr, "usage: drawfb DEVICE [X Y]\n");
        return 2;
    }
    memset(&set, 0, sizeof set);
    find_screen(&crtc, &connector, &set.mode);
    at = make_buffer(&buffer, WIDTH, HEIGHT);
    memset(&fb, 0, sizeof fb);
    fb.width = WIDTH;
    fb.height = HEIGHT;
    fb.pitch = buffer.pitch;
    fb.bpp = 32;
    fb.depth = 24;
    fb.handle = buffer.handle;
    ask("framebuffer", DRM_IOCTL_MODE_ADDFB, &fb);
    set.crtc_id = crtc;
    set.fb_id = fb.fb_id;
    set.set_connectors_ptr = (uintptr_t)&connector;
    set.count_connectors = 1;
    set.mode_valid = 1;
    ask("set", DRM_IOCTL_MODE_SETCRTC, &set);
    draw(at, buffer.pitch); /* now that the buffer is in the adapter's memory */
    memset(&dirty, 0, sizeof dirty);
    dirty.fb_id = fb.fb_id;
    /* a driver that keeps a copy writes it out; one that does not has nothing to do */
    if (ioctl(device, DRM_IOCTL_MODE_DIRTYFB, &dirty) && errno != ENOSYS && errno != EOPNOTSUPP)
        perror("drawfb: dirty");
    if (argc == 4)
        draw_cursor(crtc, atoi(argv[2]), atoi(argv[3]));
    printf("drawn\n");
    fflush(stdout);
    pause();
    return 0;
}
