/* virtio_gpu_resource.c - resources of a virtio display adapter, transfers into them
   SPDX-License-Identifier: MIT

   CONTENTS   1 Formats   2 Table   3 Freeing   4 The driver's memory   5 Transfers */
#include "virtio_gpu_model.h"

#include <stdlib.h>

/* ==== 1  Formats ============================================================================== */

/* Their names give the bytes of a pixel in the order of their addresses. */
static const gpu_format formats[] = {
    { 1, 2, 1, 0, 3 },   /* B8G8R8A8 */
    { 2, 2, 1, 0, 3 },   /* B8G8R8X8 */
    { 3, 1, 2, 3, 0 },   /* A8R8G8B8 */
    { 4, 1, 2, 3, 0 },   /* X8R8G8B8 */
    { 67, 0, 1, 2, 3 },  /* R8G8B8A8 */
    { 68, 3, 2, 1, 0 },  /* X8B8G8R8 */
    { 121, 3, 2, 1, 0 }, /* A8B8G8R8 */
    { 134, 0, 1, 2, 3 }  /* R8G8B8X8 */
};

const gpu_format *gpu_format_of(uint32_t number)
{
    for (unsigned i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (formats[i].number == number)
            return &formats[i];
    }
    return NULL;
}

/* ==== 2  Table ================================================================================ */

static gpu_resource **find_place(virtio_gpu *g, uint32_t id)
{
    gpu_resource **at = &g->bucket[id % GPU_BUCKETS];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

gpu_resource *gpu_find(virtio_gpu *g, uint32_t id)
{
    return id ? *find_place(g, id) : NULL;
}

bool gpu_table_room(virtio_gpu *g, uint32_t id)
{
    return !gpu_find(g, id) && g->count.resources < GPU_RESOURCES;
}

void gpu_table_add(virtio_gpu *g, gpu_resource *r)
{
    *find_place(g, r->id) = r;
    g->count.resources++;
    g->count.resource_bytes += r->bytes;
    g->render.bytes += r->render_bytes;
}

static bool is_room(const virtio_gpu *g, uint64_t bytes)
{
    return g->count.resources < GPU_RESOURCES && bytes <= GPU_RESOURCE_BYTES &&
           g->count.resource_bytes + bytes <= GPU_ALL_BYTES &&
           g->old_bytes + g->count.resource_bytes + bytes <= 2 * GPU_ALL_BYTES;
}

gpu_reply gpu_create(virtio_gpu *g, gpu_request *q)
{
    const uint8_t *c = q->command + GPU_HEADER_BYTES;
    uint32_t id = dxpu_get_le32(c), width = dxpu_get_le32(c + 8), height = dxpu_get_le32(c + 12);
    uint64_t bytes = (uint64_t)width * height * GPU_PIXEL_BYTES;
    const gpu_format *format = gpu_format_of(dxpu_get_le32(c + 4));
    gpu_resource *r;
    if (!id || gpu_find(g, id))
        return GPU_BAD_RESOURCE;
    if (!format || !width || !height || width > GPU_SIDE || height > GPU_SIDE)
        return GPU_BAD_PARAMETER;
    r = is_room(g, bytes) ? calloc(1, sizeof *r) : NULL;
    if (r)
        r->pixels = calloc(1, (size_t)bytes);
    if (!r || !r->pixels) {
        free(r);
        return GPU_NO_MEMORY;
    }
    r->id = id;
    r->width = width;
    r->height = height;
    r->format = format;
    r->bytes = (uint32_t)bytes;
    gpu_table_add(g, r);
    return GPU_OK;
}

/* ==== 3  Freeing ============================================================================== */

static void free_list(gpu_resource *r)
{
    while (r) {
        gpu_resource *next = r->next;
        free(r->pixels);
        free(r->backing);
        free(r);
        r = next;
    }
}

/* job.run */
static void cleaner_run(job *j)
{
    gpu_cleaner *c = (gpu_cleaner *)j;
    free_list(c->old);
    c->old = NULL;
}

static void clean(virtio_gpu *g);

static void cleaned(virtio *v, virtio_request *r)
{
    virtio_gpu *g = (virtio_gpu *)v;
    (void)r;
    g->old_bytes -= g->cleaner.bytes;
    clean(g);
}

static void clean(virtio_gpu *g)
{
    gpu_cleaner *c = &g->cleaner;
    if (!g->old || c->r.busy || g->closing)
        return;
    c->r.job.run = cleaner_run;
    c->old = g->old;
    c->bytes = g->old_bytes;
    g->old = NULL;
    virtio_submit(&g->v, &c->r, cleaned);
}

void gpu_free_old(virtio_gpu *g)
{
    free_list(g->old);
    g->old = NULL;
}

/* It is in no bucket any more. */
static void retire(virtio_gpu *g, gpu_resource *r)
{
    gpu_screen_forget(g, r);
    gpu_drop_result(g, r);
    g->count.resources--;
    g->count.resource_bytes -= r->bytes;
    g->render.bytes -= r->render_bytes;
    g->entries -= r->entries;
    g->old_bytes += r->bytes;
    r->next = g->old;
    g->old = r;
}

void gpu_table_remove(virtio_gpu *g, gpu_resource *r)
{
    *find_place(g, r->id) = r->next;
    retire(g, r);
    clean(g);
}

gpu_reply gpu_unref(virtio_gpu *g, gpu_request *q)
{
    gpu_resource *r = gpu_find(g, dxpu_get_le32(q->command + GPU_HEADER_BYTES));
    gpu_reply how;
    if (!r)
        return GPU_BAD_RESOURCE;
    how = gpu_unref_3d(g, r);
    gpu_table_remove(g, r);
    return how;
}

void gpu_forget_all(virtio_gpu *g)
{
    for (unsigned i = 0; i < GPU_BUCKETS; i++) {
        while (g->bucket[i]) {
            gpu_resource *r = g->bucket[i];
            g->bucket[i] = r->next;
            retire(g, r);
        }
    }
    clean(g);
}

/* ==== 4  The driver's memory ================================================================== */

enum { ATTACH_BYTES = GPU_HEADER_BYTES + 8 };

static uint32_t attach_count(const gpu_request *q)
{
    return dxpu_get_le32(q->command + GPU_HEADER_BYTES + 4);
}

/* The list is here.  Entries of 0 bytes are passed over. */
static gpu_reply attach_list(virtio_gpu *g, gpu_resource *r, uint32_t count)
{
    fn_range *to = malloc(count * sizeof *to);
    uint32_t n = 0;
    uint64_t all = 0;
    if (!to)
        return GPU_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *e = g->list + (size_t)i * GPU_ENTRY_BYTES;
        uint64_t address = dxpu_get_le64(e);
        uint32_t bytes = dxpu_get_le32(e + 8);
        if (bytes > UINT64_MAX - address) {
            free(to);
            return GPU_BAD_PARAMETER;
        }
        to[n].address = address;
        to[n].bytes = bytes;
        to[n].nowhere = false;
        n += bytes > 0;
        all += bytes;
    }
    r->backing = to;
    r->entries = count; /* of memory */
    r->backing_bytes = all;
    g->entries += count;
    return GPU_OK;
}

static gpu_reply attach_done(virtio_gpu *g, const gpu_request *q)
{
    gpu_resource *r = gpu_find(g, dxpu_get_le32(q->command + GPU_HEADER_BYTES));
    gpu_reply how = q->r.failed ? GPU_UNSPECIFIED : attach_list(g, r, attach_count(q));
    free(g->list);
    g->list = NULL;
    return how;
}

static void list_fetched(virtio *v, virtio_request *r)
{
    gpu_end((virtio_gpu *)v, attach_done((virtio_gpu *)v, (gpu_request *)r));
}

gpu_reply gpu_attach(virtio_gpu *g, gpu_request *q)
{
    gpu_resource *r = gpu_find(g, dxpu_get_le32(q->command + GPU_HEADER_BYTES));
    uint32_t count = attach_count(q), bytes, here = q->bytes - ATTACH_BYTES;
    if (!r)
        return GPU_BAD_RESOURCE;
    if (r->backing)
        return GPU_UNSPECIFIED; /* it has some */
    if (!count || count > GPU_ENTRIES)
        return GPU_BAD_PARAMETER;
    bytes = count * GPU_ENTRY_BYTES;
    if (here + q->r.readable_bytes < bytes)
        return GPU_BAD_PARAMETER;
    g->list = g->entries + count <= GPU_ALL_ENTRIES ? malloc(bytes) : NULL;
    if (!g->list)
        return GPU_NO_MEMORY;
    here = here < bytes ? here : bytes;
    memcpy(g->list, q->command + ATTACH_BYTES, here);
    if (here == bytes)
        return attach_done(g, q);
    virtio_read(&g->v, &q->r, g->list + here, bytes - here, list_fetched);
    return GPU_LATER;
}

gpu_reply gpu_detach(virtio_gpu *g, gpu_request *q)
{
    gpu_resource *r = gpu_find(g, dxpu_get_le32(q->command + GPU_HEADER_BYTES));
    if (!r)
        return GPU_BAD_RESOURCE;
    if (!r->backing)
        return GPU_UNSPECIFIED;
    g->entries -= r->entries;
    free(r->backing);
    r->backing = NULL;
    r->entries = 0;
    r->backing_bytes = 0;
    return GPU_OK;
}

/* ==== 5  Transfers ============================================================================ */

static void transfer_over(virtio_gpu *g, bool failed)
{
    gpu_end(g, failed ? GPU_UNSPECIFIED : GPU_OK);
}

gpu_reply gpu_transfer_begin(virtio_gpu *g, gpu_request *q)
{
    const uint8_t *c = q->command + GPU_HEADER_BYTES;
    gpu_rect rect = gpu_rect_at(c);
    uint64_t offset = dxpu_get_le64(c + 16), last;
    uint32_t stride;
    gpu_resource *r = gpu_find(g, dxpu_get_le32(c + 24));
    if (!r || r->rendered)
        return GPU_BAD_RESOURCE;
    if (!r->backing)
        return GPU_UNSPECIFIED;
    if (!gpu_rect_fits(&rect, r->width, r->height))
        return GPU_BAD_PARAMETER;
    if (!rect.width || !rect.height)
        return GPU_OK;
    stride = r->width * GPU_PIXEL_BYTES;
    last = (uint64_t)stride * (rect.height - 1) + (uint64_t)rect.width * GPU_PIXEL_BYTES;
    if (last > r->backing_bytes || offset > r->backing_bytes - last)
        return GPU_BAD_PARAMETER;
    gpu_transfer_start(g, r, offset,
                       r->pixels + (uint64_t)rect.y * stride + (uint64_t)rect.x * GPU_PIXEL_BYTES,
                       rect.height, rect.width * GPU_PIXEL_BYTES, stride, stride, transfer_over);
    g->count.transfers++;
    return GPU_LATER;
}

void gpu_transfer_start(virtio_gpu *g, gpu_resource *r, uint64_t from, uint8_t *to, uint32_t rows,
                        uint32_t row_bytes, uint32_t stride, uint32_t to_stride,
                        void (*then)(virtio_gpu *g, bool failed))
{
    gpu_transfer *t = &g->transfer;
    if (row_bytes == stride && row_bytes == to_stride) { /* its rows follow one another */
        row_bytes *= rows;
        rows = 1;
    }
    t->resource = r;
    t->from = from;
    t->to = to;
    t->rows = rows;
    t->row_bytes = row_bytes;
    t->stride = stride;
    t->to_stride = to_stride;
    t->done = t->entry = 0;
    t->before = 0;
    t->failed = false;
    t->then = then;
}

static void run_fetched(void *user, fn_fetch *f)
{
    virtio_gpu *g = user;
    gpu_transfer *t = &g->transfer;
    t->busy[f - t->run] = false;
    t->reading -= f->bytes;
    t->failed |= f->failed;
    g->count.transfer_bytes += t->resource->rendered ? 0 : f->bytes;
}

static fn_fetch *free_run(gpu_transfer *t)
{
    for (unsigned i = 0; i < GPU_RUNS && t->reading < GPU_READ_BYTES; i++) {
        if (!t->busy[i]) {
            t->busy[i] = true;
            return &t->run[i];
        }
    }
    return NULL;
}

static void run_start(virtio_gpu *g, fn_fetch *f)
{
    gpu_transfer *t = &g->transfer;
    const fn_range *backing = t->resource->backing;
    uint32_t left = t->row_bytes - t->done;
    while (t->from + t->done - t->before >= backing[t->entry].bytes)
        t->before += backing[t->entry++].bytes;
    f->ranges = backing;
    f->to = t->to + t->done;
    f->bytes = left < GPU_RUN_BYTES ? left : GPU_RUN_BYTES;
    f->done = run_fetched;
    fn_fetch_start_at(&g->v.fn, f, t->entry, (uint32_t)(t->from + t->done - t->before));
    t->reading += f->bytes;
    t->done += f->bytes;
    if (t->done < t->row_bytes)
        return;
    t->rows--;
    t->done = 0;
    t->from += t->stride;
    t->to += t->to_stride;
}

static void transfer_stop(virtio_gpu *g)
{
    gpu_transfer *t = &g->transfer;
    for (unsigned i = 0; i < GPU_RUNS; i++) {
        if (t->busy[i])
            fn_fetch_cancel(&g->v.fn, &t->run[i]);
        t->busy[i] = false;
    }
    t->reading = 0;
    t->resource = NULL;
}

bool gpu_transfer_work(virtio_gpu *g)
{
    gpu_transfer *t = &g->transfer;
    bool any = false;
    fn_fetch *f;
    if (!t->resource)
        return false;
    while (t->rows && !t->failed && (f = free_run(t)) != NULL) {
        run_start(g, f);
        any = true;
    }
    if (!t->failed && (t->rows || t->reading))
        return any;
    transfer_stop(g);
    t->then(g, t->failed);
    return true;
}

void gpu_cancel(virtio_gpu *g)
{
    transfer_stop(g);
    gpu_render_cancel(g);
    free(g->list);
    g->list = NULL;
}
