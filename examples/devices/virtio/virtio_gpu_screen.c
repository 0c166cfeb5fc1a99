/* virtio_gpu_screen.c - scanout, cursor, EDID and picture of a virtio display adapter
   SPDX-License-Identifier: MIT

   CONTENTS   1 What the display says   2 Scanout   3 Cursor   4 Picture */
#include "virtio_gpu_model.h"

#include <stdlib.h>

enum { SCANOUTS_ROOM = 16, SCANOUT_BYTES = 24 }; /* of a reply with display information */

/* ==== 1  What the display says ================================================================ */

gpu_reply gpu_display_info(virtio_gpu *g, gpu_request *q)
{
    uint8_t *d = q->reply + GPU_HEADER_BYTES;
    (void)g;
    q->reply_bytes = GPU_HEADER_BYTES + SCANOUTS_ROOM * SCANOUT_BYTES;
    memset(d, 0, SCANOUTS_ROOM * SCANOUT_BYTES);
    dxpu_put_le32(d + 8, EDID_WIDTH);
    dxpu_put_le32(d + 12, EDID_HEIGHT);
    dxpu_put_le32(d + 16, 1); /* enabled */
    return GPU_OK_DISPLAY;
}

gpu_reply gpu_get_edid(virtio_gpu *g, gpu_request *q)
{
    uint8_t *d = q->reply + GPU_HEADER_BYTES;
    if (dxpu_get_le32(q->command + GPU_HEADER_BYTES))
        return GPU_BAD_SCANOUT;
    q->reply_bytes = GPU_HEADER_BYTES + 8 + GPU_EDID_ROOM;
    memset(d, 0, 8 + GPU_EDID_ROOM);
    dxpu_put_le32(d, EDID_BYTES);
    memcpy(d + 8, g->screen.edid, EDID_BYTES);
    return GPU_OK_EDID;
}

/* ==== 2  Scanout ============================================================================== */

/* What is shown of a 3D resource is a copy of it. */
static bool gpu_has_pixels(virtio_gpu *g, gpu_resource *r)
{
    uint64_t bytes = (uint64_t)r->width * r->height * GPU_PIXEL_BYTES;
    if (r->pixels)
        return true;
    if (!r->format || bytes > GPU_RESOURCE_BYTES ||
        g->count.resource_bytes + bytes > GPU_ALL_BYTES ||
        g->old_bytes + g->count.resource_bytes + bytes > 2 * GPU_ALL_BYTES)
        return false;
    r->pixels = calloc(1, (size_t)bytes);
    if (!r->pixels)
        return false;
    r->bytes = (uint32_t)bytes;
    g->count.resource_bytes += bytes;
    return true;
}

gpu_reply gpu_set_scanout(virtio_gpu *g, gpu_request *q)
{
    const uint8_t *c = q->command + GPU_HEADER_BYTES;
    gpu_rect rect = gpu_rect_at(c);
    uint32_t id = dxpu_get_le32(c + 20);
    gpu_resource *r = gpu_find(g, id);
    if (dxpu_get_le32(c + 16))
        return GPU_BAD_SCANOUT;
    if (id && !r)
        return GPU_BAD_RESOURCE;
    if (r && (!rect.width || !rect.height || !gpu_rect_fits(&rect, r->width, r->height)))
        return GPU_BAD_PARAMETER;
    if (r && r->rendered && !gpu_has_pixels(g, r))
        return GPU_BAD_RESOURCE;
    g->screen.shown = r;
    g->screen.rect = rect;
    return GPU_OK;
}

/* The picture is made of the resource when someone asks for it, so there is nothing to do, but for
   one that the renderer has. */
gpu_reply gpu_flush(virtio_gpu *g, gpu_request *q)
{
    const uint8_t *c = q->command + GPU_HEADER_BYTES;
    gpu_rect rect = gpu_rect_at(c);
    gpu_resource *r = gpu_find(g, dxpu_get_le32(c + 16));
    if (!r)
        return GPU_BAD_RESOURCE;
    if (!gpu_rect_fits(&rect, r->width, r->height))
        return GPU_BAD_PARAMETER;
    g->count.flushes++;
    if (r->rendered && r == g->screen.shown && rect.width && rect.height)
        return gpu_move_to_pixels(g, r, &rect);
    return GPU_OK;
}

void gpu_screen_forget(virtio_gpu *g, const gpu_resource *r)
{
    if (g->screen.shown == r)
        g->screen.shown = NULL;
}

void gpu_screen_dark(virtio_gpu *g)
{
    g->screen.shown = NULL;
    memset(&g->screen.cursor, 0, sizeof g->screen.cursor);
}

/* ==== 3  Cursor =============================================================================== */

/* The position is that of the image's first pixel: so Linux's driver gives it. */
gpu_reply gpu_cursor_move(virtio_gpu *g, gpu_request *q)
{
    const uint8_t *c = q->command + GPU_HEADER_BYTES;
    if (dxpu_get_le32(c))
        return GPU_BAD_SCANOUT;
    g->screen.cursor.x = (int32_t)dxpu_get_le32(c + 4);
    g->screen.cursor.y = (int32_t)dxpu_get_le32(c + 8);
    return GPU_OK;
}

/* The image is copied: the driver may change the resource without changing the cursor.  The byte of
   a pixel that is not a colour is its opacity, also where the format has none: Linux's driver gives
   every buffer that a program draws into such a format. */
gpu_reply gpu_cursor_update(virtio_gpu *g, gpu_request *q)
{
    uint32_t id = dxpu_get_le32(q->command + GPU_HEADER_BYTES + 16);
    const gpu_resource *r = gpu_find(g, id);
    if (dxpu_get_le32(q->command + GPU_HEADER_BYTES))
        return GPU_BAD_SCANOUT;
    if (id && !r)
        return GPU_BAD_RESOURCE;
    if (r && r->rendered) { /* its pixels are the renderer's: there is a cursor without an image */
        g->screen.cursor.format = NULL;
        return gpu_cursor_move(g, q);
    }
    if (r && (r->width != GPU_CURSOR_SIDE || r->height != GPU_CURSOR_SIDE))
        return GPU_BAD_PARAMETER;
    g->screen.cursor.format = r ? r->format : NULL;
    if (r)
        memcpy(g->screen.cursor.pixels, r->pixels, sizeof g->screen.cursor.pixels);
    return gpu_cursor_move(g, q);
}

/* ==== 4  Picture ============================================================================== */

/* One colour of a pixel of the cursor, which is multiplied by its opacity already, over another. */
static uint8_t blend(uint8_t under, uint8_t over, unsigned opacity)
{
    unsigned sum = over + under * (255 - opacity) / 255;
    return (uint8_t)(sum < 255 ? sum : 255);
}

/* The cursor's part of row y, over what is there. */
static void draw_cursor(const gpu_screen *s, uint8_t *rgb, uint32_t y)
{
    const gpu_format *f = s->cursor.format;
    int64_t line = (int64_t)y - s->cursor.y;
    if (!f || line < 0 || line >= GPU_CURSOR_SIDE)
        return;
    for (int64_t i = 0; i < GPU_CURSOR_SIDE; i++) {
        const uint8_t *p =
            s->cursor.pixels + (line * GPU_CURSOR_SIDE + i) * (int64_t)GPU_PIXEL_BYTES;
        unsigned opacity = p[f->alpha];
        int64_t x = s->cursor.x + i;
        uint8_t *to = rgb + x * 3;
        if (x < 0 || x >= s->rect.width)
            continue;
        to[0] = blend(to[0], p[f->red], opacity);
        to[1] = blend(to[1], p[f->green], opacity);
        to[2] = blend(to[2], p[f->blue], opacity);
    }
}

static void draw_row(const gpu_screen *s, uint8_t *rgb, uint32_t y)
{
    const gpu_resource *r = s->shown;
    const gpu_format *f = r->format;
    const uint8_t *from =
        r->pixels + ((uint64_t)(s->rect.y + y) * r->width + s->rect.x) * GPU_PIXEL_BYTES;
    uint8_t *to = rgb;
    for (uint32_t x = 0; x < s->rect.width; x++, from += GPU_PIXEL_BYTES, to += 3) {
        to[0] = from[f->red];
        to[1] = from[f->green];
        to[2] = from[f->blue];
    }
    draw_cursor(s, rgb, y);
}

bool gpu_picture(void *device, uint8_t *rgb, unsigned row, unsigned rows, unsigned *width,
                 unsigned *height)
{
    virtio_gpu *g = device;
    const gpu_screen *s = &g->screen;
    if (!s->shown)
        return false;
    *width = s->rect.width;
    *height = s->rect.height;
    for (uint32_t y = row; rgb && y < row + rows && y < s->rect.height; y++) {
        draw_row(s, rgb, y);
        rgb += (size_t)s->rect.width * 3;
        g->count.pictures += y + 1 == s->rect.height; /* the last row of one */
    }
    return true;
}
