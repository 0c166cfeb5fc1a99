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

#include "screen.h"

#include <fcntl.h>
#include <unistd.h>

enum { WIDTH = SCREEN_WIDTH, HEIGHT = SCREEN_HEIGHT, CURSOR = 64 };

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

static void draw_cursor(const screen *s, int x, int y)
{
    struct drm_mode_create_dumb buffer;
    struct drm_mode_cursor2 cursor;
    uint32_t *at = screen_buffer(s, &buffer, CURSOR, CURSOR);
    for (uint32_t i = 0; i < CURSOR * CURSOR; i++)
        at[i] = i < CURSOR * CURSOR / 2 ? 0xff0000c8 | i % CURSOR << 16 | i / CURSOR << 8 : 0;
    memset(&cursor, 0, sizeof cursor);
    cursor.flags = DRM_MODE_CURSOR_BO | DRM_MODE_CURSOR_MOVE;
    cursor.crtc_id = s->crtc;
    cursor.x = x;
    cursor.y = y;
    cursor.width = cursor.height = CURSOR;
    cursor.handle = buffer.handle;
    cursor.hot_x = 5;
    cursor.hot_y = 9;
    screen_ask(s, "cursor", DRM_IOCTL_MODE_CURSOR2, &cursor);
}

int main(int argc, char **argv)
{
    struct drm_mode_create_dumb buffer;
    screen s = { .program = "drawfb" };
    void *at;
    s.device = argc == 2 || argc == 4 ? open(argv[1], O_RDWR) : -1;
    if (s.device < 0) {
        fprintf(stderr, "usage: drawfb DEVICE [X Y]\n");
        return 2;
    }
    screen_find(&s);
    at = screen_buffer(&s, &buffer, WIDTH, HEIGHT);
    screen_set(&s, buffer.handle, buffer.pitch);
    draw(at, buffer.pitch); /* now that the buffer is in the adapter's memory */
    screen_flush(&s);
    if (argc == 4)
        draw_cursor(&s, atoi(argv[2]), atoi(argv[3]));
    printf("drawn\n");
    fflush(stdout);
    pause();
    return 0;
}
