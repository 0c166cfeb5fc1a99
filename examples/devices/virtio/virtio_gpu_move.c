/* virtio_gpu_move.c - boxes of 3D resources between driver, renderer and scanout
   SPDX-License-Identifier: MIT

   A box goes in pieces that fit a slot: rows of blocks of one layer, or bytes of a buffer.  In the
   slot its rows follow one another, in the driver's memory they are a stride apart; only they are
   read there, and only they are written.

   CONTENTS   1 The box   2 Pieces   3 To the renderer   4 From the renderer   5 Commands */
#include "virtio_gpu_model.h"

enum { /* offsets behind the header of TRANSFER_TO_HOST_3D and TRANSFER_FROM_HOST_3D */
       BOX_AT = 0,
       OFFSET_AT = 24,
       RESOURCE_AT = 32,
       LEVEL_AT = 36,
       STRIDE_AT = 40,
       LAYER_STRIDE_AT = 44,
       CONTEXT_AT = 16, /* of the header */
       TARGET_3D = 3
};

/* ==== 1  The box ============================================================================== */

static uint32_t smaller(uint32_t size, uint32_t level)
{
    return size >> level ? size >> level : 1;
}

static uint32_t blocks(uint32_t pixels, uint32_t side)
{
    return (pixels + side - 1) / side;
}

/* `size` from `at` on lies in `all`, and begins and ends with a block. */
static bool side_fits(uint32_t at, uint32_t size, uint32_t all, uint32_t block)
{
    return at <= all && size <= all - at && at % block == 0 &&
           (size % block == 0 || size == all - at);
}

static bool box_fits(const gpu_move *m)
{
    const gpu_resource *r = m->resource;
    uint32_t deep = r->target == TARGET_3D ? smaller(r->depth, m->level) : r->layers;
    return side_fits(m->x, m->width, smaller(r->width, m->level), r->block.width) &&
           side_fits(m->y, m->height, smaller(r->height, m->level), r->block.height) &&
           side_fits(m->z, m->depth, deep, 1);
}

/* Where its rows are in the driver's memory; 0: the driver gave no stride.  False: not all of them
   are in it. */
static bool place(gpu_move *m, uint64_t offset, uint32_t stride, uint32_t layer_stride)
{
    const gpu_resource *r = m->resource;
    uint64_t last,
        least = (uint64_t)blocks(smaller(r->width, m->level), r->block.width) * r->block.bytes;
    m->row_bytes = blocks(m->width, r->block.width) * r->block.bytes;
    m->rows = blocks(m->height, r->block.height);
    m->stride = stride ? stride : least;
    m->layer_stride = layer_stride
                          ? layer_stride
                          : m->stride * blocks(smaller(r->height, m->level), r->block.height);
    if (m->stride > UINT32_MAX || m->layer_stride > UINT32_MAX ||
        (m->rows > 1 && m->stride < m->row_bytes))
        return false;
    m->from = offset;
    last = (m->depth - 1) * m->layer_stride + (m->rows - 1) * m->stride + m->row_bytes;
    return last <= r->backing_bytes && offset <= r->backing_bytes - last;
}

/* ==== 2  Pieces =============================================================================== */

static void next_piece(gpu_move *m)
{
    m->piece_bytes = m->row_bytes - m->at;
    if (m->piece_bytes > RENDER_SLOT_BYTES) /* of a buffer, which has one row */
        m->piece_bytes = RENDER_SLOT_BYTES;
    m->piece_rows = RENDER_SLOT_BYTES / m->piece_bytes;
    if (m->piece_rows > m->rows - m->row)
        m->piece_rows = m->rows - m->row;
    m->done_row = m->done_bytes = 0;
    m->entry = 0;
    m->before = 0;
}

/* False: that was the last one. */
static bool advance(gpu_move *m)
{
    m->at += m->piece_bytes;
    if (m->at < m->row_bytes)
        return true;
    m->at = 0;
    m->row += m->piece_rows;
    if (m->row < m->rows)
        return true;
    m->row = 0;
    m->layer++;
    return m->layer < m->depth;
}

/* Of the piece's row, in the driver's memory. */
static uint64_t row_from(const gpu_move *m, uint32_t row)
{
    return m->from + m->layer * m->layer_stride + (m->row + row) * m->stride + m->at;
}

/* Ask the renderer to move the piece to or from its slot. */
static gpu_reply ask_for_piece(virtio_gpu *g)
{
    gpu_move *m = &g->render.move;
    const gpu_block *b = &m->resource->block;
    bool buffer = !m->resource->target;
    uint32_t y = m->row * b->height, bytes = m->piece_bytes * m->piece_rows;
    uint32_t height = m->piece_rows * b->height;
    int slot = m->slot;
    if (height > m->height - y) /* the last block may be cut off */
        height = m->height - y;
    const uint32_t words[] = { (uint32_t)slot,
                               bytes,
                               m->level,
                               buffer ? m->x + m->at : m->x,
                               m->y + y,
                               m->z + m->layer,
                               buffer ? m->piece_bytes : m->width,
                               height,
                               1,
                               m->piece_bytes,
                               bytes };
    m->slot = -1; /* the renderer's until it answers */
    return gpu_ask(g, m->way == GPU_TO_RENDERER ? RENDER_WRITE : RENDER_READ, m->context,
                   m->resource->id, slot, sizeof words / sizeof words[0], words);
}

void gpu_move_stop(virtio_gpu *g)
{
    gpu_move *m = &g->render.move;
    render_link_free(&g->render.link, m->slot);
    m->slot = -1;
    m->resource = NULL;
}

static void move_end(virtio_gpu *g, gpu_reply how)
{
    gpu_move_stop(g);
    g->render.wait = GPU_WAIT_NOTHING;
    gpu_end(g, how);
}

/* ==== 3  To the renderer ====================================================================== */

/* The piece is in its slot. */
static void piece_there(virtio_gpu *g, bool failed)
{
    gpu_move *m = &g->render.move;
    if (failed || ask_for_piece(g) != GPU_LATER) {
        g->current->refused = true;
    } else if (advance(m)) {
        g->render.wait = GPU_WAIT_SLOT;
        return;
    }
    gpu_move_stop(g);
    gpu_all_asked(g);
}

static void piece_read(virtio_gpu *g)
{
    gpu_move *m = &g->render.move;
    g->render.wait = GPU_WAIT_MEMORY;
    gpu_transfer_start(g, m->resource, row_from(m, 0), render_link_at(&g->render.link, m->slot),
                       m->piece_rows, m->piece_bytes, (uint32_t)m->stride, m->piece_bytes,
                       piece_there);
}

/* ==== 4  From the renderer ==================================================================== */

void gpu_move_answered(virtio_gpu *g, int slot, bool good)
{
    gpu_move *m = &g->render.move;
    m->slot = slot;
    g->render.wait = GPU_WAIT_ROOM;
    if (!good)
        move_end(g, GPU_UNSPECIFIED);
}

/* Some bytes of a row of the piece to the driver's memory; how many. */
static uint32_t write_some(virtio_gpu *g, const uint8_t *from, uint64_t to, uint32_t bytes)
{
    gpu_move *m = &g->render.move;
    const fn_range *backing = m->resource->backing;
    uint64_t at;
    while (to - m->before >= backing[m->entry].bytes) /* rows of a piece ascend */
        m->before += backing[m->entry++].bytes;
    at = to - m->before;
    if (bytes > backing[m->entry].bytes - at)
        bytes = backing[m->entry].bytes - (uint32_t)at;
    return fn_write_one(&g->v.fn, backing[m->entry].address + at, from, bytes);
}

static uint32_t copy_some(virtio_gpu *g, const uint8_t *from, uint32_t bytes)
{
    const gpu_move *m = &g->render.move;
    const gpu_resource *r = m->resource;
    uint64_t row = m->y + m->row + m->done_row;
    memcpy(r->pixels + (row * r->width + m->x) * GPU_PIXEL_BYTES + m->done_bytes, from, bytes);
    return bytes;
}

/* Bytes of the piece that follow one another where they go. */
static uint32_t in_a_row(const gpu_move *m)
{
    uint32_t rows =
        m->way == GPU_TO_DRIVER && m->stride == m->piece_bytes ? m->piece_rows - m->done_row : 1;
    return rows * m->piece_bytes - m->done_bytes;
}

/* A turn of what is in the slot; false: there is no room. */
static bool piece_out(virtio_gpu *g)
{
    gpu_move *m = &g->render.move;
    const uint8_t *slot = render_link_at(&g->render.link, m->slot);
    uint32_t turn = 0;
    while (m->done_row < m->piece_rows && turn < GPU_RENDER_TURN_BYTES) {
        const uint8_t *from = slot + (size_t)m->done_row * m->piece_bytes + m->done_bytes;
        uint32_t bytes = in_a_row(m);
        if (m->way == GPU_TO_DRIVER && !fn_room(&g->v.fn))
            break;
        bytes = m->way == GPU_TO_PIXELS
                    ? copy_some(g, from, bytes)
                    : write_some(g, from, row_from(m, m->done_row) + m->done_bytes, bytes);
        turn += bytes;
        m->done_bytes += bytes;
        m->done_row += m->done_bytes / m->piece_bytes;
        m->done_bytes %= m->piece_bytes;
    }
    g->count.move_bytes += turn;
    if (m->done_row < m->piece_rows)
        return turn > 0;
    render_link_free(&g->render.link, m->slot);
    m->slot = -1;
    g->render.wait = GPU_WAIT_SLOT;
    if (!advance(m))
        move_end(g, GPU_OK);
    return true;
}

/* ==== 5  Commands ============================================================================= */

/* One whose backing was taken away can have no transfer under way: the queue is in order. */
bool gpu_move_work(virtio_gpu *g)
{
    gpu_move *m = &g->render.move;
    if (g->render.wait == GPU_WAIT_ROOM)
        return piece_out(g);
    if (g->render.wait != GPU_WAIT_SLOT)
        return false;
    m->slot = render_link_slot(&g->render.link);
    if (m->slot < 0)
        return false;
    next_piece(m);
    if (m->way == GPU_TO_RENDERER) {
        g->count.move_bytes += m->piece_bytes * m->piece_rows;
        piece_read(g);
    } else if (ask_for_piece(g) != GPU_LATER) {
        move_end(g, GPU_UNSPECIFIED);
    }
    return true;
}

static gpu_reply begin(virtio_gpu *g, gpu_way way)
{
    gpu_move *m = &g->render.move;
    m->way = way;
    m->layer = m->row = m->at = 0;
    m->slot = -1;
    g->count.moves++;
    g->render.wait = GPU_WAIT_SLOT;
    return GPU_LATER;
}

/* What is wrong with the resource or its context, or the move is there: GPU_OK. */
static gpu_reply parse(virtio_gpu *g, const gpu_request *q, gpu_move *m)
{
    const uint8_t *c = q->command + GPU_HEADER_BYTES;
    uint32_t *box[] = { &m->x, &m->y, &m->z, &m->width, &m->height, &m->depth };
    gpu_resource *r = gpu_find(g, dxpu_get_le32(c + RESOURCE_AT));
    for (unsigned i = 0; i < 6; i++)
        *box[i] = dxpu_get_le32(c + BOX_AT + (size_t)i * 4);
    m->context = dxpu_get_le32(q->command + CONTEXT_AT);
    m->level = dxpu_get_le32(c + LEVEL_AT);
    if (!r || !r->rendered)
        return GPU_BAD_RESOURCE;
    if (m->context && gpu_context_of(g, m->context) != GPU_OK)
        return gpu_context_of(g, m->context);
    if (!gpu_is_rendered(g, r) || !r->backing)
        return GPU_UNSPECIFIED;
    m->resource = r;
    return m->level < r->levels && r->samples <= 1 && box_fits(m) ? GPU_OK : GPU_BAD_PARAMETER;
}

static gpu_reply move(virtio_gpu *g, gpu_request *q, gpu_way way)
{
    const uint8_t *c = q->command + GPU_HEADER_BYTES;
    gpu_move m = { .slot = -1 };
    gpu_reply how = parse(g, q, &m);
    if (how != GPU_OK)
        return how;
    if (!m.width || !m.height || !m.depth)
        return GPU_OK;
    if (!place(&m, dxpu_get_le64(c + OFFSET_AT), dxpu_get_le32(c + STRIDE_AT),
               dxpu_get_le32(c + LAYER_STRIDE_AT)))
        return GPU_BAD_PARAMETER;
    g->render.move = m;
    return begin(g, way);
}

gpu_reply gpu_move_to_host(virtio_gpu *g, gpu_request *q)
{
    return move(g, q, GPU_TO_RENDERER);
}

gpu_reply gpu_move_from_host(virtio_gpu *g, gpu_request *q)
{
    return move(g, q, GPU_TO_DRIVER);
}

gpu_reply gpu_move_to_pixels(virtio_gpu *g, gpu_resource *r, const gpu_rect *rect)
{
    gpu_move *m = &g->render.move;
    if (!gpu_is_rendered(g, r))
        return GPU_OK; /* what is shown stays as it was */
    memset(m, 0, sizeof *m);
    m->resource = r;
    m->x = rect->x;
    m->y = rect->y;
    m->width = rect->width;
    m->height = rect->height;
    m->depth = 1;
    m->rows = rect->height;
    m->row_bytes = rect->width * GPU_PIXEL_BYTES;
    return begin(g, GPU_TO_PIXELS);
}
